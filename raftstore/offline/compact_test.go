package offline

import (
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

// TestCompactCompares: a copy that lacks a row or has another one is not taken.
func TestCompactCompares(t *testing.T) {
	open := func(value string) *bbolt.DB {
		db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		err = db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket([]byte("outer"))
			if err != nil {
				return err
			}
			if b, err = b.CreateBucket([]byte("inner")); err != nil || value == "" {
				return err
			}
			return b.Put([]byte("key"), []byte(value))
		})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	one, same, other, less := open("value"), open("value"), open("another"), open("")
	if err := sameRows(one, same, 1, nil); err != nil {
		t.Error(err)
	}
	for _, db := range []*bbolt.DB{other, less} {
		if sameRows(one, db, 1, nil) == nil || sameRows(db, one, 1, nil) == nil {
			t.Error("files that differ are taken for the same")
		}
	}
}
