package raftstore

import (
	"errors"
	"io/fs"
	"path/filepath"

	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/raftlog"
)

// makeFiles makes what a fresh server lacks, and makes the names durable before
// anything is promised: what is synced in a file goes with its name when the
// power fails.
func (s *Store) makeFiles() error {
	for _, name := range []string{changesdb.Name, raftlog.FileName} {
		if err := boltfile.Make(filepath.Join(s.cfg.Dir, name)); err != nil {
			return err
		}
	}
	if err := changesdb.SyncDir(filepath.Dir(filepath.Clean(s.cfg.Dir))); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return changesdb.SyncDir(s.cfg.Dir)
}
