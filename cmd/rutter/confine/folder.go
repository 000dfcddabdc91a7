package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// folderMode is the mode of a folder that is private to its owner.
const folderMode = 0o700

// ErrFolder: other users can open the folder, and that cannot be changed.
var ErrFolder = errors.New("confine: others of this machine can look into the folder")

// Folder makes a private folder. If the folder exists, it makes it private only if it
// is empty or has one of the files that mark it as a daemon's own, because a home or
// /tmp that was named by mistake must stay open. It returns the folder if it changed
// it.
func Folder(path string, marks ...string) (closed bool, err error) {
	if err := os.MkdirAll(path, folderMode); err != nil {
		return false, err
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return false, err
	}
	loose := fmt.Errorf("%w: %s has mode %#o: chmod 700 it, or name a folder of its own", ErrFolder, path, info.Mode().Perm())
	entries, err := os.ReadDir(path)
	if err != nil {
		return false, err
	}
	// A file system of its own, as new as it can be, has one folder of mke2fs's.
	ours := len(entries) == 0 || len(entries) == 1 && entries[0].Name() == "lost+found"
	for _, mark := range marks {
		if _, err := os.Lstat(filepath.Join(path, mark)); err == nil {
			ours = true
		}
	}
	if !ours {
		return false, loose
	}
	if err := os.Chmod(path, folderMode); err != nil {
		return false, errors.Join(loose, err)
	}
	return true, nil
}

// FirstForeign returns the first of the paths that is there and belongs to another user
// than that of the process: "" if there is none.
func FirstForeign(paths ...string) string {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok && int(s.Uid) != os.Geteuid() {
			return path
		}
	}
	return ""
}
