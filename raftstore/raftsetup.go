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
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/hashilog"
	"rutter/raftstore/internal/raftlog"
)

// raftConfig returns raft's configuration, made from ours.
func raftConfig(cfg *Config, logger *slog.Logger) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(cfg.ID)
	c.HeartbeatTimeout, c.ElectionTimeout = cfg.Heartbeat, cfg.Election
	c.LeaderLeaseTimeout, c.CommitTimeout = cfg.LeaderLease, cfg.CommitTimeout
	c.MaxAppendEntries = maxAppendEntries
	c.TrailingLogs = cfg.TrailingLogs
	c.SnapshotInterval, c.SnapshotThreshold = cfg.MarkerEvery, cfg.MarkerEntries
	c.NoSnapshotRestoreOnStart = true // changes.db already has what a snapshot would restore
	c.ShutdownOnRemove = false
	c.NoLegacyTelemetry = true
	c.Logger = hashilog.New(logger)
	return c
}

// maxAppendEntries bounds the entries that raft sends a follower at once. Our entries are
// already batches.
const maxAppendEntries = 64

// enqueueTimeout bounds the time until raft takes an entry from its caller.
const enqueueTimeout = time.Second

// makeFiles makes the files that a new server lacks, and syncs their folders before
// anything is acknowledged: if the power fails, a synced file without a durable name is
// lost.
func (s *Store) makeFiles() error {
	for _, name := range []string{changesdb.Name, raftlog.FileName} {
		if err := boltfile.Make(filepath.Join(s.cfg.Dir, name)); err != nil {
			return err
		}
	}
	if err := disk.SyncDir(filepath.Dir(filepath.Clean(s.cfg.Dir))); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return disk.SyncDir(s.cfg.Dir)
}

// withoutPanic runs fn, which starts raft. Raft panics if its files cannot be read or written;
// then withoutPanic returns the reported error of the file.
func (s *Store) withoutPanic(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("start raft: %v", p)
		}
		if known := s.failure(); err != nil && known != nil {
			err = known // raft keeps only its text
		}
	}()
	return fn()
}
