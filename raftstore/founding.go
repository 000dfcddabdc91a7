package raftstore

import (
	"errors"
	"io/fs"
	"path/filepath"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/changesdb"
)

// makeFiles makes what a fresh server lacks, and makes the names durable before
// anything is promised: what is synced in a file goes with its name when the
// power fails.
func (s *Store) makeFiles() error {
	for _, name := range []string{changesdb.Name, changesdb.RaftName} {
		if err := boltfile.Make(filepath.Join(s.cfg.Dir, name)); err != nil {
			return err
		}
	}
	if err := changesdb.SyncDir(filepath.Dir(filepath.Clean(s.cfg.Dir))); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return changesdb.SyncDir(s.cfg.Dir)
}

// undoFounding takes back what a crash left of a founding, so that it can begin
// again: raft saves term 1 first and its first entry then, and takes the term
// alone for a cluster's state. No server has term 1 in any other way: the first
// election is that of term 2.
func (s *Store) undoFounding() error {
	last, err := s.raftLog.LastIndex()
	if err != nil || last > 0 {
		return err
	}
	if term, err := s.raftLog.GetUint64(keyCurrentTerm); err != nil || term != 1 {
		if errors.Is(err, raftboltdb.ErrKeyNotFound) {
			return nil
		}
		return err
	}
	return s.raftLog.SetUint64(keyCurrentTerm, 0)
}
