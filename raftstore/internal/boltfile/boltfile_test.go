package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/disk"
)

// made makes a file with some pages of rows and returns its path.
func made(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows.db")
	if err := Make(path); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		rows, err := tx.CreateBucket([]byte("rows"))
		for i := 0; err == nil && i < 1000; i++ {
			err = rows.Put(fmt.Appendf(nil, "key%4d", i), make([]byte, 100))
		}
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestMake: a file is made under another name, so that what a crash leaves of it does not
// stand in its place, and what is there stays.
func TestMake(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	if err := os.Mkdir(path+".new"+PendingSuffix, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Make(path); !errors.Is(err, disk.ErrTrouble) {
		t.Errorf("the other name is taken: %v, want ErrTrouble", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that was not made is there: %v", err)
	}
	path = made(t)
	before := disk.FileSize(path)
	if err := Make(path); err != nil || disk.FileSize(path) != before {
		t.Errorf("a file that is there: %v, of %d bytes, before %d", err, disk.FileSize(path), before)
	}
}

// TestCheckPages: a whole file passes, and each page of the tree that is overwritten is
// found. A meta page may be lost, except where the check is strict.
func TestCheckPages(t *testing.T) {
	t.Parallel()
	path := made(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(CheckPages(path, true), CheckPages(filepath.Join(t.TempDir(), "none"), true)); err != nil {
		t.Errorf("a whole file and none: %v", err)
	}
	size := os.Getpagesize()
	found := 0
	for page := 0; page*size < len(whole); page++ {
		damaged := append([]byte(nil), whole...)
		copy(damaged[page*size:], make([]byte, 64))
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		strict, lax := CheckPages(path, true), CheckPages(path, false)
		if strict != nil {
			found++
			if !errors.Is(strict, log.ErrCorrupt) {
				t.Errorf("page %d: %v, want ErrCorrupt", page, strict)
			}
		}
		if page < 2 && (strict == nil || page == 0 && lax != nil) {
			t.Errorf("meta page %d: strict %v, else %v", page, strict, lax)
		}
	}
	if found < 20 {
		t.Errorf("%d damaged pages were found, the file has more in its tree", found)
	}
}

// TestGuard: a panic and a fault in a map are errors.
func TestGuard(t *testing.T) {
	t.Parallel()
	if err := Guard(func() error { panic("page 7") }); !errors.Is(err, log.ErrCorrupt) {
		t.Errorf("a panic: %v, want ErrCorrupt", err)
	}
	if err := Guard(func() error { return nil }); err != nil {
		t.Error(err)
	}
}
