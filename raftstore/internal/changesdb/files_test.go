package changesdb

import (
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// A restore waits for no reader of the file that it replaces, and takes it from none: the
// last one closes it (SAFETY S5).
func TestFilesCloseWithTheirLastUser(t *testing.T) {
	t.Parallel()
	open := func(name string) *bbolt.DB {
		db, err := Open(filepath.Join(t.TempDir(), name), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	f := new(Files)
	if err := f.Swap(open("first")); err != nil {
		t.Fatal(err)
	}
	one, two := f.Acquire(), f.Acquire()
	if err := f.Swap(open("second")); err != nil {
		t.Fatal(err)
	}
	read := func(h *Handle) error { return h.DB.View(func(*bbolt.Tx) error { return nil }) }
	if err := read(one); err != nil {
		t.Errorf("the replaced file with two readers: %v", err)
	}
	if err := f.Release(one); err != nil {
		t.Error(err)
	}
	if err := read(two); err != nil {
		t.Errorf("the replaced file with one reader: %v", err)
	}
	if err := f.Release(two); err != nil {
		t.Error(err)
	}
	if err := read(two); err != berrors.ErrDatabaseNotOpen {
		t.Errorf("the replaced file without readers: %v, want it closed", err)
	}
	if err := f.View(func(*bbolt.Tx) error { return nil }); err != nil {
		t.Errorf("the file in its place: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
