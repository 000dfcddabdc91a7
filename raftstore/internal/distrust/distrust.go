// Package distrust makes a start read from the disk, because an earlier process may have
// left data in the kernel's memory only.
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

// After a sync has failed, Linux marks the pages that it could not write as clean: they
// can be read, and are not on disk. So a start reads raft's log from the disk and not
// from memory. If the last process ended because of its disk, the start reads changes.db
// from the disk too. Then the checks of the start see what is really there. changes.db
// may be large, so it is not always read anew.

const (
	// FileName is the file that a process leaves if it ended because of its disk. It need
	// not be synced, because it is in the same memory as the pages that it warns of.
	FileName = "disk-trouble"
	// troubleWait bounds the time to write it on a disk in trouble.
	troubleWait = 200 * time.Millisecond
)

// Note writes the file for the next start of the server, if that is possible. cause is
// the error that ended this process.
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

// Reread makes later reads of the files in a data folder come from the disk: see above.
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

// dropCache makes the kernel drop a file from memory. The kernel keeps pages that are not
// yet written, so dropCache syncs the file first.
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
		return nil // the file system keeps no pages in memory
	}
	return err
}

// Clear removes the file. A start calls it when it has read and checked everything.
func Clear(dir string) error {
	err := os.Remove(filepath.Join(dir, FileName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data folder: %w: %w", disk.ErrTrouble, err)
	}
	return nil
}
