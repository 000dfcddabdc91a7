package offline

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/raftlog"
)

// A bbolt file never shrinks: deletions leave free pages in it, which are reused but
// never returned to the file system. Compacting copies the pages in use to a new file.

// compactTx bounds a transaction of the copy, in bytes.
const compactTx = 16 << 20

// Compacted is the size of a file before and after, in bytes.
type Compacted struct {
	File   string `json:"file"`
	Before int64  `json:"bytes_before"`
	After  int64  `json:"bytes_after"`
}

// CompactFolder copies changes.db and raft.db of a data folder to new files without free
// pages. No server may have the folder open. After every row was compared, each new file
// replaces the old one with one rename. The copy of one file needs space beside the old
// one. A crash leaves the old file or the new one.
func CompactFolder(dir string, progress changesdb.Progress) (done []Compacted, err error) {
	for _, name := range []string{changesdb.Name, raftlog.FileName} {
		c, err := compactFile(filepath.Join(dir, name), progress)
		if err != nil {
			return done, err
		}
		done = append(done, c)
	}
	return done, nil
}

func compactFile(path string, progress changesdb.Progress) (c Compacted, err error) {
	c = Compacted{File: path, Before: disk.FileSize(path)}
	if _, err := os.Stat(path); err != nil {
		return c, fmt.Errorf("%s: %w: no server's data folder", filepath.Dir(path), err)
	}
	if err := boltfile.CheckPages(path, true); err != nil {
		return c, err
	}
	source, err := changesdb.OpenBolt(path, 0) // for writing, so that no other process has it open
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	used := max(0, c.Before-freeOf(source))
	if free, size := disk.Space(filepath.Dir(path)); size > 0 && free < used {
		return c, fmt.Errorf("%s: %w for a copy: it has %d bytes in use, and its file system %d free: free some there, or move the folder to a larger disk", path, log.ErrNoRoom, used, free)
	}
	copied := path + ".compact" + boltfile.PendingSuffix
	if err := errors.Join(os.RemoveAll(copied), copyFile(source, copied, used, progress)); err != nil {
		return c, errors.Join(fmt.Errorf("%s: compact: %w", path, err), os.RemoveAll(copied))
	}
	if err := os.Rename(copied, path); err != nil {
		return c, errors.Join(fmt.Errorf("%s: %w: %w", path, disk.ErrTrouble, err), os.RemoveAll(copied))
	}
	c.After = disk.FileSize(path)
	return c, disk.SyncDir(filepath.Dir(path))
}

// freeOf returns the bytes of a file's free pages. bbolt counts them when a write
// transaction ends.
func freeOf(db *bbolt.DB) int64 {
	if tx, err := db.Begin(true); err == nil {
		_ = tx.Rollback()
	}
	return boltfile.FreeBytes(db.Stats())
}

// copyFile writes a compact copy of source, and syncs and compares it.
func copyFile(source *bbolt.DB, path string, used int64, progress changesdb.Progress) error {
	target, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: boltfile.LockWait, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType, NoSync: true,
	})
	if err != nil {
		return err
	}
	// Both files are walked in the same order, so one pass compares them. The progress
	// counts half for the copy and half for the comparison.
	err = boltfile.Guard(func() error { return bbolt.Compact(target, source, compactTx) })
	if err == nil {
		err = target.Sync()
	}
	if err == nil {
		progress.Report(used/2, used)
		err = boltfile.Guard(func() error { return sameRows(source, target, used, progress) })
	}
	return errors.Join(err, target.Close())
}

// sameRows returns an error unless two files have the same buckets and rows.
func sameRows(a, b *bbolt.DB, used int64, progress changesdb.Progress) error {
	return a.View(func(one *bbolt.Tx) error {
		return b.View(func(two *bbolt.Tx) error {
			var done int64
			return sameCursors(one.Cursor(), two.Cursor(), one.Bucket, two.Bucket, func(n int) {
				before := done
				done += int64(n)
				if done/compactTx != before/compactTx {
					progress.Report(used/2+min(done, used)/2, used)
				}
			})
		})
	})
}

func sameCursors(a, b *bbolt.Cursor, inA, inB func([]byte) *bbolt.Bucket, saw func(bytes int)) error {
	keyA, rowA := a.First()
	keyB, rowB := b.First()
	for keyA != nil || keyB != nil {
		if !bytes.Equal(keyA, keyB) || !bytes.Equal(rowA, rowB) || (rowA == nil) != (rowB == nil) {
			return fmt.Errorf("the copy differs at the key %x: %w", keyA[:min(len(keyA), 16)], log.ErrCorrupt)
		}
		if rowA == nil { // a bucket
			nextA, nextB := inA(keyA), inB(keyB)
			if nextA == nil || nextB == nil || nextA.Sequence() != nextB.Sequence() {
				return fmt.Errorf("the copy differs in the bucket %x: %w", keyA[:min(len(keyA), 16)], log.ErrCorrupt)
			}
			if err := sameCursors(nextA.Cursor(), nextB.Cursor(), nextA.Bucket, nextB.Bucket, saw); err != nil {
				return err
			}
		}
		saw(len(keyA) + len(rowA))
		keyA, rowA = a.Next()
		keyB, rowB = b.Next()
	}
	return nil
}
