package history

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"rutter/raftstore/internal/changesdb"
)

// rowsSum hashes all rows of a folder, in order.
func rowsSum(t testing.TB, f *Folder) [sha256.Size]byte {
	t.Helper()
	sum := sha256.New()
	var walk func(b *bbolt.Bucket) error
	walk = func(b *bbolt.Bucket) error {
		return b.ForEach(func(key, row []byte) error {
			fmt.Fprintf(sum, "%q %q\n", key, row)
			if row == nil {
				return walk(b.Bucket(key))
			}
			return nil
		})
	}
	err := f.view(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			fmt.Fprintf(sum, "%q\n", name)
			return walk(b)
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return [sha256.Size]byte(sum.Sum(nil))
}

// TestVerifyFindsFlips: a flipped byte in any row of any bucket is found.
func TestVerifyFindsFlips(t *testing.T) {
	t.Parallel()
	h := newPastLog(t, 7)
	for range 300 {
		h.step()
	}
	dir := t.TempDir()
	if err := h.folder(dir, 0, 50).Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, changesdb.Name))
	if err != nil {
		t.Fatal(err)
	}
	for _, bucket := range [][]byte{changesdb.BucketEvents, changesdb.BucketObjects, changesdb.BucketCheckpoints} {
		if err := os.WriteFile(filepath.Join(dir, changesdb.Name), whole, 0o600); err != nil {
			t.Fatal(err)
		}
		flipRow(t, filepath.Join(dir, changesdb.Name), bucket)
		f, err := OpenFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		v, err := f.Verify(t.Context(), nil)
		if err != nil || len(v.Problems) == 0 || v.Problems[0].Remedy == "" {
			t.Errorf("a flipped byte in %s: %v, %+v", bucket, err, v)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// flipRow changes a byte in the middle of a row in the middle of a bucket.
func flipRow(t testing.TB, path string, bucket []byte) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		for {
			key, row := b.Cursor().Last()
			if row != nil {
				damaged := bytes.Clone(row)
				damaged[len(damaged)/2] ^= 4
				return b.Put(bytes.Clone(key), damaged)
			}
			b = b.Bucket(key)
		}
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}
