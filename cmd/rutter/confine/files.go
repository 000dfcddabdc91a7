package confine

import (
	"fmt"
	"path/filepath"

	"github.com/landlock-lsm/go-landlock/landlock"
	abi "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// system are the system's files that a program reads: names, resolvers, time zones, and
// the kernel's files about the process and its devices.
var system = []string{"/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sys", "/usr"}

// Files restricts the process, all of its threads and the programs that it starts
// later, by Landlock: to write only below the folders of write, and to read only there,
// below read and the system's files. It cannot be undone. Open files stay open, and the
// network is not restricted. It returns the version of Landlock that the kernel has,
// and uses what that version can: 0 if there is none, and nothing has changed. A folder
// that does not exist when it is called is not allowed later.
func Files(write, read []string) (version int, err error) {
	if version, err = abi.LandlockGetABIVersion(); err != nil {
		return 0, nil // the kernel has no Landlock, or it is switched off
	}
	rules := []landlock.Rule{
		landlock.RWDirs(write...).WithRefer().IgnoreIfMissing(),
		landlock.RODirs(append(read, system...)...).IgnoreIfMissing(),
		landlock.RWFiles("/dev/null").IgnoreIfMissing(),
	}
	if err := landlock.V5.BestEffort().RestrictPaths(rules...); err != nil {
		return version, fmt.Errorf("%w: %w", ErrKernel, err)
	}
	return version, nil
}

// FoldersOf returns the folders of paths: by the given names, and by the targets of
// links, because an operator may replace a folder or the target of a link.
func FoldersOf(paths ...string) (folders []string) {
	for _, path := range paths {
		folders = append(folders, filepath.Dir(path))
		if real, err := filepath.EvalSymlinks(path); err == nil {
			folders = append(folders, filepath.Dir(real))
		}
	}
	return folders
}
