// Package raftstore agrees on the change log and keeps it.
package raftstore

import (
	"context"

	"rutter/log"
	"rutter/projections"
)

// Store is one server's part of the replicated log.
type Store struct{}

// View is what a reader sees: the state and the place in the log that it is of.
type View struct {
	State *projections.State
	Head  log.Cursor
	Time  log.Time
}

// Open opens the store.
func Open(cfg Config) (*Store, error) { return nil, ErrStopped }

// Run runs the server until ctx is done.
func (s *Store) Run(ctx context.Context) error { return ErrStopped }

// Close frees the files.
func (s *Store) Close() error { return nil }

// Propose submits a change.
func (s *Store) Propose(ctx context.Context, c *log.Change) (log.Result, error) {
	return log.Result{}, ErrStopped
}

// View calls fn under the read lock.
func (s *Store) View(fn func(v View)) {}

// Head returns the log's end.
func (s *Store) Head() log.Cursor { return log.Cursor{} }

// Floor returns the lowest cursor that can be served.
func (s *Store) Floor() log.Seq { return 0 }

// Changed is closed when more was applied.
func (s *Store) Changed() <-chan struct{} { return nil }

// Entries reads the log.
func (s *Store) Entries(after log.Seq, max int) ([]log.Entry, error) { return nil, ErrStopped }

// CheckCursor says whether c can be served.
func (s *Store) CheckCursor(c log.Cursor) error { return ErrStopped }

// WaitSeq waits until seq is applied here.
func (s *Store) WaitSeq(ctx context.Context, seq log.Seq) error { return ErrStopped }

// Consistent waits until everything acknowledged before the call is applied here.
func (s *Store) Consistent(ctx context.Context) (log.Seq, error) { return 0, ErrStopped }

// Status describes the server.
func (s *Store) Status() Status { return Status{} }

// Ready says why the server should not be used yet, or nil.
func (s *Store) Ready() error { return ErrStopped }

// AddVoter adds a member.
func (s *Store) AddVoter(ctx context.Context, id, address string) error { return ErrStopped }

// Remove removes a member.
func (s *Store) Remove(ctx context.Context, id string) error { return ErrStopped }

// Transfer hands leadership to id, or to the best follower if id is "".
func (s *Store) Transfer(ctx context.Context, id string) error { return ErrStopped }
