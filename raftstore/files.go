package raftstore

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

// handle is an open changes.db with its users counted: a restore puts another
// file in its place and waits for no reader; the last one closes it.
type handle struct {
	db   *bbolt.DB
	refs int // protected by files.mu
}

// files hands out the current changes.db.
type files struct {
	mu      sync.Mutex
	current *handle
}

func (f *files) acquire() *handle {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current.refs++
	return f.current
}

func (f *files) release(h *handle) error {
	f.mu.Lock()
	h.refs--
	last := h.refs == 0
	f.mu.Unlock()
	if !last {
		return nil
	}
	return h.db.Close()
}

// swap puts db in the place of the current file.
func (f *files) swap(db *bbolt.DB) error {
	f.mu.Lock()
	old := f.current
	f.current = &handle{db: db, refs: 1}
	f.mu.Unlock()
	if old == nil {
		return nil
	}
	return f.release(old)
}

// close lets go of the current file, if there is one. None may be in use.
func (f *files) close() error {
	h := f.current
	if h == nil {
		return nil
	}
	f.current = nil
	return f.release(h)
}

// freeBytes is how many bytes the current file can grow by without its own growing.
func (f *files) freeBytes() int64 {
	h := f.acquire()
	defer func() { _ = f.release(h) }()
	return boltfile.FreeBytes(h.db.Stats())
}

// view runs fn in a read transaction of the current file. fn must be short.
func (f *files) view(fn func(tx *bbolt.Tx) error) error {
	h := f.acquire()
	err := boltfile.Guard(func() error { return h.db.View(fn) })
	return errors.Join(err, f.release(h))
}

// prepareDir makes the data folder and removes what an interrupted restore left.
func prepareDir(dir string) error {
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

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync folder: %w: %w", disk.ErrTrouble, err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync folder: %w: %w", disk.ErrTrouble, err)
	}
	return nil
}
