// Package distrust makes a start read from the disk what an earlier process may have left
// in memory only.
package distrust

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/disk"

	"golang.org/x/sys/unix"

	"rutter/raftstore/internal/raftlog"
)

// After a sync has failed, Linux takes the pages that it could not write for clean:
// they can be read, and are not on disk. So a start reads raft's log from the disk
// and not from memory, and changes.db too if the last process ended for its disk;
// the checks of a start then see what is there. changes.db may be large, and so is
// not read anew each time.

const (
	// FileName is the file that a process leaves which ended for its disk. It need
	// not be synced: it is in the same memory as the pages that it warns of.
	FileName = "disk-trouble"
	// troubleWait bounds the writing of it, on a disk in trouble.
	troubleWait = 200 * time.Millisecond
)

// Note leaves word for the next start of the folder's server, if it can: cause
// ended this one.
func Note(dir string, cause error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = os.WriteFile(filepath.Join(dir, FileName), []byte(cause.Error()+"\n"), 0o600)
	}()
	select {
	case <-done:
	case <-time.After(troubleWait):
	}
}

// Reread has the files of a data folder read from the disk: see above.
func Reread(dir string) error {
	paths, err := raftlog.Files(dir)
	if err != nil {
		return fmt.Errorf("data folder %s: %w", dir, err)
	}
	if _, err := os.Stat(filepath.Join(dir, FileName)); err == nil {
		paths = append(paths, filepath.Join(dir, changesdb.Name))
	}
	for _, path := range paths {
		if err := dropCache(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w: what was written before cannot be brought to the disk: %w", path, disk.ErrTrouble, err)
		}
	}
	return nil
}

// dropCache has the kernel forget what it has of a file in memory. It keeps what it
// has yet to write, which is therefore written first.
func dropCache(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Sync(); err != nil {
		return err
	}
	err = unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		return nil // this file system keeps no pages in memory
	}
	return err
}

// Clear ends a start that has read and checked everything.
func Clear(dir string) error {
	err := os.Remove(filepath.Join(dir, FileName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data folder: %w: %w", disk.ErrTrouble, err)
	}
	return nil
}
