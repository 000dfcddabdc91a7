package raftstore

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"rutter/raftstore/internal/boltfile"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/hashilog"
	"rutter/raftstore/internal/raftlog"
)

// raftConfig is raft's configuration for ours.
func raftConfig(cfg *Config, logger *slog.Logger) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(cfg.ID)
	c.HeartbeatTimeout, c.ElectionTimeout = cfg.Heartbeat, cfg.Election
	c.LeaderLeaseTimeout, c.CommitTimeout = cfg.LeaderLease, cfg.CommitTimeout
	c.MaxAppendEntries = maxAppendEntries
	c.TrailingLogs = cfg.TrailingLogs
	c.SnapshotInterval, c.SnapshotThreshold = cfg.MarkerEvery, cfg.MarkerEntries
	c.NoSnapshotRestoreOnStart = true // changes.db is what a snapshot would restore
	c.ShutdownOnRemove = false
	c.NoLegacyTelemetry = true
	c.Logger = hashilog.New(logger)
	return c
}

// maxAppendEntries bounds what raft sends a follower at once; our entries are
// batches already.
const maxAppendEntries = 64

// enqueueTimeout bounds how long raft may take to pick an entry up.
const enqueueTimeout = time.Second

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

// calmly runs fn, a start of raft's, which panics where its files cannot be
// read or written. What was reported of them is the error then.
func (s *Store) calmly(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("start raft: %v", p)
		}
		if known := s.failure(); err != nil && known != nil {
			err = known // raft keeps but its text
		}
	}()
	return fn()
}
