package raftstore

import (
	"errors"
	"os"

	"rutter/raftstore/internal/admission"
	"rutter/raftstore/internal/clocks"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/peer"
)

// Sentinels of the store. Refusals of a change are not errors: see
// log.Result.Refusal. Those of cursors are in package log.
var (
	// ErrNoLeader: no leader was found in time; the change was not written.
	// Retry, with the same id.
	ErrNoLeader = errors.New("raftstore: the cluster has no leader now")
	// ErrOverloaded: a queue is full; the change was not written. Retry later.
	ErrOverloaded = admission.ErrOverloaded
	// ErrUnknown: the change may have been written or not. Retry with the same
	// id: it is applied once in any case.
	ErrUnknown = peer.ErrUnknown
	// ErrStopped: the store is not running, or has stopped because it failed.
	ErrStopped = peer.ErrStopped
	// ErrClock: the servers' clocks do not say what the time is: the only one there
	// is has jumped, or those that there are differ. Never the client's clock.
	ErrClock = clocks.Err
	// ErrNotReady: this server has not yet caught up with the leader's commit
	// since it started.
	ErrNotReady = errors.New("raftstore: this server has not caught up yet")
	// ErrDiverged: this server's state is not that of the others, or nobody can
	// tell whose is right. It serves nothing until it agrees with a majority
	// again: rebuild it from the others.
	ErrDiverged = errors.New("raftstore: this server differs from the others")
	// ErrDisk: a file of the store could not be read or written; the server
	// stops in order and keeps what it had.
	ErrDisk = disk.ErrTrouble
)

// errNotLeader: this server is not the leader; nothing was written (SAFETY P3).
var errNotLeader = admission.ErrNotLeader

// ErrNotRegular: a name is that of a pipe, a device or a folder, where a file is
// wanted.
var ErrNotRegular = disk.ErrNotRegular

// OpenRegular opens a file that somebody named, to be read. It does not wait for
// the other end of a pipe, which nothing could interrupt. Errors: ErrNotRegular.
func OpenRegular(path string) (*os.File, error) { return disk.OpenRegular(path) }
