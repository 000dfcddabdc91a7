package raftstore

import (
	"errors"
	"os"

	"rutter/raftstore/internal/admission"
	"rutter/raftstore/internal/clocks"
	"rutter/raftstore/internal/disk"
	"rutter/raftstore/internal/peer"
)

// Sentinel errors of the store. A refusal of a change is not an error: see
// log.Result.Refusal. Errors of cursors are in package log.
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
	// ErrClock: the time cannot be known from the servers' clocks. The only clock has
	// jumped, or the clocks differ. It is never about the client's clock.
	ErrClock = clocks.Err
	// ErrNotReady: since its start this server has not yet caught up with the leader's
	// commit.
	ErrNotReady = errors.New("raftstore: this server has not caught up yet")
	// ErrLagging: this server has no vote, and is too far behind the leader. Use another
	// server.
	ErrLagging = errors.New("raftstore: this replica lags")
	// ErrDiverged: this server's state differs from the others', or it is unknown whose
	// state is right. It serves nothing until it agrees with a majority again. Rebuild it
	// from the others.
	ErrDiverged = errors.New("raftstore: this server differs from the others")
	// ErrDisk: a file of the store could not be read or written; the server
	// stops in order and keeps what it had.
	ErrDisk = disk.ErrTrouble
)

// errNotLeader: this server is not the leader; nothing was written (SAFETY P3).
var errNotLeader = admission.ErrNotLeader

// OpenRegular opens a file that a user named, for reading. It does not wait for the other
// end of a pipe, because that wait could not be interrupted.
func OpenRegular(path string) (*os.File, error) { return disk.OpenRegular(path) }
