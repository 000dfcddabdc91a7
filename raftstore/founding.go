package raftstore

import (
	"errors"
	"io/fs"
	"path/filepath"

	"rutter/raftstore/internal/boltfile"
)

// makeFiles makes what a fresh server lacks, and makes the names durable before
// anything is promised: what is synced in a file goes with its name when the
// power fails.
func (s *Store) makeFiles() error {
	for _, name := range []string{dbName, raftName} {
		if err := boltfile.Make(filepath.Join(s.cfg.Dir, name)); err != nil {
			return err
		}
	}
	if err := syncDir(filepath.Dir(filepath.Clean(s.cfg.Dir))); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return syncDir(s.cfg.Dir)
}
