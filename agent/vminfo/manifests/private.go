package manifests

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// othersMask are the bits of a mode by which other users use a file or folder.
const othersMask = 0o077

// closeFolder makes the folder of manifests private to its owner, because manifests have
// passwords, and because what is written there runs as root. A folder that holds other
// things may have been named by mistake: it stays as it is, which is reported.
func (f *Folder) closeFolder() {
	path := f.cfg.Manifests
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&othersMask == 0 {
		return
	}
	foreign, err := foreignEntry(path)
	if info.Mode()&fs.ModeSticky != 0 {
		foreign = "files of all users (it is sticky, as /tmp is)"
	}
	if err == nil && foreign != "" {
		err = fmt.Errorf("it holds other things than manifests, as %s: chmod 700 it, or name a folder of its own", foreign)
	}
	if err == nil {
		err = os.Chmod(path, info.Mode().Perm()&^othersMask)
	}
	if err != nil {
		f.fail(fmt.Errorf("vminfo: other users can use the folder of manifests %s (mode %#o), and it stays open: %w", path, info.Mode().Perm(), err))
		return
	}
	f.cfg.Logger.Warn("the folder of manifests was open to other users: it is closed now", "folder", path, "mode", info.Mode().Perm())
}

// foreignEntry returns the name of something in a folder of manifests that does not
// belong there: "" if there is none. Files about the ends of VMs, pid files may be there, and what mke2fs makes.
func foreignEntry(path string) (string, error) {
	folder, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	for _, name := range names {
		if !strings.Contains(name, ".json") && !strings.HasSuffix(name, ".pid") && !strings.Contains(name, exitSuffix) && !strings.HasPrefix(name, ".new") && name != "lost+found" {
			return name, nil
		}
	}
	return "", err
}

// closeManifest makes a file that is a manifest private to its owner. What a link leads
// to stays as it is.
func (f *Folder) closeManifest(name string) {
	path := filepath.Join(f.cfg.Manifests, name)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return // a link, or gone
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&othersMask == 0 {
		return
	}
	mode := fs.FileMode(st.Mode & 0o777)
	if err := unix.Fchmod(fd, uint32(mode&^othersMask)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.skip(fmt.Sprintf("the privacy of %s: other users can read it (mode %#o), and it cannot be closed: %v", path, mode, err))
		return
	}
	f.cfg.Logger.Warn("a manifest was open to other users: it is closed now", "manifest", path, "mode", mode)
}
