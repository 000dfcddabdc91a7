package storeapi

import (
	"context"
	"errors"
	"fmt"

	"rutter/api/backend"

	"rutter/api"
	"rutter/log"
	"rutter/projections"
	"rutter/raftstore"
)

// Enqueue queues a change without waiting, for package api's write stream.
func (a Store) Enqueue(c *log.Change, done func(log.Result, error)) error {
	err := asAPI(a.Store.Enqueue(c, func(result log.Result, err error) {
		err = asAPI(err)
		a.Refused.count(result, err)
		done(result, err)
	}))
	a.Refused.count(log.Result{}, err)
	return err
}

// NewID makes ids of changes, with the time of the agreed clock.
func (a Store) NewID() (log.UUID, error) { return a.NewChangeID(), nil }

// Retainer adapts the store's retention to api.Retainer.
type Retainer struct{ *raftstore.Store }

// PlanRetention implements api.Retainer.
func (r Retainer) PlanRetention(want *api.Retention) (api.RetentionPlan, error) {
	p, err := r.Store.PlanRetention((*raftstore.Retention)(want))
	return api.RetentionPlan{
		Retention: api.Retention(p.Retention), Head: p.Head, Floor: p.Floor, Oldest: p.Oldest, Used: p.Bytes, Next: p.Next, NextTime: p.NextTime,
	}, err
}

// SetRetention implements api.Retainer.
func (r Retainer) SetRetention(ctx context.Context, want api.Retention) error {
	return asAPI(r.Store.SetRetention(ctx, raftstore.Retention(want)))
}

// asAPI translates the store's errors to those of package api.
func asAPI(err error) error {
	switch {
	case errors.Is(err, raftstore.ErrUnknown):
		return fmt.Errorf("%w: %w", backend.ErrUnknown, err) // an earlier try may have been written
	case errors.Is(err, raftstore.ErrNoLeader):
		return fmt.Errorf("%w: %w", backend.ErrNoLeader, err)
	case errors.Is(err, raftstore.ErrOverloaded):
		return fmt.Errorf("%w: %w", backend.ErrOverloaded, err)
	case errors.Is(err, raftstore.ErrClock):
		return fmt.Errorf("%w: %w", backend.ErrClock, err)
	}
	return err
}

// Backup adapts the store's backups to package api.
func (a Store) Backup(ctx context.Context) (api.Backup, error) {
	b, err := a.Store.Backup(ctx)
	if err != nil {
		return api.Backup{}, err
	}
	return api.Backup{ReadCloser: b, Cluster: b.Cluster, Seq: b.Seq, Size: b.Size}, nil
}

// Store adapts the store to package api and package varp.
type Store struct {
	*raftstore.Store
	// Refused counts the changes that were refused; nil: they are not counted.
	Refused *Refused
	// Zone is that of the server; "": it has none.
	Zone string
}

// Propose calls the store, and translates its errors to those of package api.
func (a Store) Propose(ctx context.Context, c *log.Change) (log.Result, error) {
	result, err := a.Store.Propose(ctx, c)
	err = asAPI(err)
	a.Refused.count(result, err)
	return result, err
}

// View calls fn with the state and its head, under the lock of applying.
func (a Store) View(fn func(*projections.State, log.Cursor)) {
	a.Store.View(func(v raftstore.View) { fn(v.State, v.Head) })
}

// Status is the store's status in package api's form.
func (a Store) Status() backend.Status {
	s := a.Store.Status()
	status := backend.Status{
		ID: s.ID, State: s.State, Leader: s.LeaderID, Term: s.Term, Applied: s.Applied, Commit: s.Commit, Detail: s, Alarms: s.Alarms(), Zone: a.Zone,
	}
	for _, m := range s.Members {
		status.Members = append(status.Members, backend.Member{ID: m.ID, Address: m.Address, Voter: m.Voter, Leader: m.Leader})
	}
	return status
}

// Packages writestream and logserver ask for these at run time, and go a slower way
// without them: one that was lost would not be noticed.
var (
	_ interface {
		Enqueue(c *log.Change, done func(log.Result, error)) error
	} = Store{}
	_ interface {
		Mentions(uuids []log.UUID, after log.Seq, limit int) (entries []log.Entry, upTo log.Seq, chain log.ChainPrefix, ok bool, err error)
	} = Store{}
)
