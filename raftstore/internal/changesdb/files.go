package changesdb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"go.etcd.io/bbolt"

	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/disk"
)

// Handle is an open changes.db that counts its users. A restore replaces the file and
// does not wait for readers; the last user closes the old file.
type Handle struct {
	DB   *bbolt.DB
	refs int // protected by files.mu
}

// Files gives access to the current changes.db.
type Files struct {
	mu      sync.Mutex
	current *Handle
}

// Acquire returns the current file, which stays open until Release.
func (f *Files) Acquire() *Handle {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current.refs++
	return f.current
}

// Release gives back what Acquire returned; the last user of a replaced file closes it.
func (f *Files) Release(h *Handle) error {
	f.mu.Lock()
	h.refs--
	last := h.refs == 0
	f.mu.Unlock()
	if !last {
		return nil
	}
	return h.DB.Close()
}

// Swap replaces the current file by db.
func (f *Files) Swap(db *bbolt.DB) error {
	f.mu.Lock()
	old := f.current
	f.current = &Handle{DB: db, refs: 1}
	f.mu.Unlock()
	if old == nil {
		return nil
	}
	return f.Release(old)
}

// Close closes the current file, if there is one. It must not be in use.
func (f *Files) Close() error {
	h := f.current
	if h == nil {
		return nil
	}
	f.current = nil
	return f.Release(h)
}

// FreeBytes returns the bytes of free pages in the current file.
func (f *Files) FreeBytes() int64 {
	h := f.Acquire()
	defer func() { _ = f.Release(h) }()
	return boltfile.FreeBytes(h.DB.Stats())
}

// View runs fn in a read transaction of the current file. fn must be short.
func (f *Files) View(fn func(tx *bbolt.Tx) error) error {
	h := f.Acquire()
	err := boltfile.Guard(func() error { return h.DB.View(fn) })
	return errors.Join(err, f.Release(h))
}

// PrepareDir makes the data folder and removes what an interrupted restore left.
func PrepareDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("data folder: %w: %w", disk.ErrTrouble, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"+boltfile.PendingSuffix))
	if err != nil {
		return fmt.Errorf("data folder %s: %w", dir, err)
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("data folder: %w: %w", disk.ErrTrouble, err)
		}
	}
	return nil
}
