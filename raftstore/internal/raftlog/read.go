package raftlog

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/raftlog/checked"
	"rutter/raftstore/internal/raftlog/wal"
)

// OpenToRead opens the log of a stopped server for reading, in either store. path is that
// of raft.db. The caller must call done at the end.
func OpenToRead(path string) (logs raft.LogStore, done func() error, err error) {
	if err := disk.CheckRegular(path); err != nil {
		return nil, nil, err
	}
	bolt, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &bbolt.Options{Timeout: boltfile.LockWait, ReadOnly: true}})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w: %w", path, disk.ErrTrouble, err)
	}
	sealed, err := bolt.Get(keyKind)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("%s: %w: %w", path, disk.ErrTrouble, err)
	}
	kind := ""
	if err == nil {
		kind, err = logKind(sealed)
	}
	if err == nil && kind == WAL {
		var w *wal.Log
		if w, err = wal.Open(filepath.Join(filepath.Dir(path), WALName), slog.New(slog.DiscardHandler)); err == nil {
			return checked.Log{LogStore: w}, func() error {
				_ = w.Close() // nothing was written
				return bolt.Close()
			}, nil
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, bolt.Close())
	}
	return checked.Log{LogStore: bolt}, bolt.Close, nil
}

// Files returns the paths of the files of a log in a folder.
func Files(dir string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, WALName, "*"))
	if err != nil {
		return nil, err
	}
	return append(paths, filepath.Join(dir, FileName)), nil
}
