package confine

import (
	"fmt"
	"path/filepath"

	"github.com/landlock-lsm/go-landlock/landlock"
	abi "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// system is what programs read of a machine: names, resolvers, time zones, and
// what the kernel says of the process and of its devices.
var system = []string{"/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sys", "/usr"}

// Files leaves the process, with all of its threads and what it starts later, no
// file but those below the folders of write, and those of read and of the system
// to read, by Landlock. It cannot be undone. Files that are open stay so, and the
// network is not concerned. It returns the version of Landlock that the kernel
// has, and does what that one can: 0 if there is none, and nothing has changed.
// A folder that is not there when it is called is not allowed later.
func Files(write, read []string) (version int, err error) {
	if version, err = abi.LandlockGetABIVersion(); err != nil {
		return 0, nil // the kernel has none, or it is switched off
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

// FoldersOf are the folders in which paths are, by the names that were given and
// where links lead: somebody may replace a folder, or what a link points to.
func FoldersOf(paths ...string) (folders []string) {
	for _, path := range paths {
		folders = append(folders, filepath.Dir(path))
		if real, err := filepath.EvalSymlinks(path); err == nil {
			folders = append(folders, filepath.Dir(real))
		}
	}
	return folders
}
