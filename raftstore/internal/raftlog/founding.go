package raftlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/disk"
)

// KeyCurrentTerm is the key of hashicorp/raft's term in the stable store (raft.go,
// keyCurrentTerm).
var KeyCurrentTerm = []byte("CurrentTerm")

// UndoFounding removes what a crash left of a founding, so that the founding can begin
// again. Raft first saves term 1 and then its first entry, and takes the term alone for
// the state of a cluster. No server has term 1 for another reason: the first election is
// that of term 2.
func (l *Log) UndoFounding() error {
	last, err := l.LastIndex()
	if err != nil || last > 0 {
		return err
	}
	if term, err := l.GetUint64(KeyCurrentTerm); err != nil || term != 1 {
		if errors.Is(err, raftboltdb.ErrKeyNotFound) {
			return nil
		}
		return err
	}
	return l.SetUint64(KeyCurrentTerm, 0)
}

// Make makes a raft.db without entries in a folder, in one rename. term must be at least
// that of the data in the folder, because later entries must not have lower terms. The
// caller must sync the folder.
func Make(dir string, term uint64) error {
	path := filepath.Join(dir, FileName)
	pending := path + boltfile.PendingSuffix
	bolt, err := raftboltdb.New(raftboltdb.Options{Path: pending, BoltOptions: &bbolt.Options{Timeout: boltfile.LockWait}})
	if err != nil {
		return fmt.Errorf("%s: %w: %w", pending, disk.ErrTrouble, err)
	}
	if err := errors.Join(bolt.SetUint64(KeyCurrentTerm, term), bolt.Close()); err != nil {
		return fmt.Errorf("%s: %w: %w", pending, disk.ErrTrouble, err)
	}
	if err := os.Rename(pending, path); err != nil {
		return fmt.Errorf("%w: %w", disk.ErrTrouble, err)
	}
	return nil
}

// IsEmpty reports whether the log whose raft.db is at path has no entries.
func IsEmpty(path string) (bool, error) {
	logs, done, err := OpenToRead(path)
	if err != nil {
		return false, err
	}
	last, err := logs.LastIndex()
	return last == 0, errors.Join(err, done())
}
