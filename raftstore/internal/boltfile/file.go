package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/disk"
)

const (
	// LockWait is how long a start waits for another process to close a file.
	LockWait = time.Second
	// PendingSuffix ends the name of a file that is not ready. A start deletes such
	// files.
	PendingSuffix = ".pending"
)

// Make makes an empty database at path, if there is none. It makes the file under another
// name and renames it, because a crash within bbolt's first write would leave a file that
// bbolt never opens again.
func Make(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // opening it reports what is wrong with it
	}
	pending := path + ".new" + PendingSuffix
	db, err := bbolt.Open(pending, 0o600, &bbolt.Options{Timeout: LockWait, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	if err == nil {
		err = db.Close()
	}
	if err == nil {
		err = os.Rename(pending, path)
	}
	if err != nil {
		return fmt.Errorf("%s: make: %w: %w", path, disk.ErrTrouble, err)
	}
	return nil
}

// Guard runs fn, and turns a panic, or a memory fault, into an error. A damaged page
// makes bbolt panic, or read outside its map. Both are reported as damage.
func Guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = errors.Join(fmt.Errorf("a page is damaged: %v: %w", p, log.ErrCorrupt), err)
		}
	}()
	return fn()
}

// FreeBytes returns the bytes of a file's free pages. It assumes pages of the system's
// size, as bbolt makes them. (DB.Info has the page size, but panics while the file is
// being remapped.)
func FreeBytes(st bbolt.Stats) int64 {
	return int64(st.FreePageN+st.PendingPageN) * int64(os.Getpagesize())
}
