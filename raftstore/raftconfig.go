package raftstore

import (
	"log/slog"
	"time"

	"github.com/hashicorp/raft"

	"rutter/raftstore/internal/hashilog"
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
