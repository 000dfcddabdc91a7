package main

import (
	"context"
	"errors"
	"fmt"

	"rutter/api"
	"rutter/api/backend"
	"rutter/log"
	"rutter/raftstore"
)

// Enqueue lets package api's write stream queue changes without waiting.
func (a storeAdapter) Enqueue(c *log.Change, done func(log.Result, error)) error {
	return asAPI(a.Store.Enqueue(c, func(result log.Result, err error) { done(result, asAPI(err)) }))
}

// newID makes ids of changes by the clock that the servers agree on.
func (a storeAdapter) newID() (log.UUID, error) { return a.NewChangeID(), nil }

// retainer shows the store's retention as package api wants it.
type retainer struct{ *raftstore.Store }

// PlanRetention implements api.Retainer.
func (r retainer) PlanRetention(want *api.Retention) (api.RetentionPlan, error) {
	p, err := r.Store.PlanRetention((*raftstore.Retention)(want))
	return api.RetentionPlan{
		Retention: api.Retention(p.Retention), Head: p.Head, Floor: p.Floor, Oldest: p.Oldest, Used: p.Bytes, Next: p.Next, NextTime: p.NextTime,
	}, err
}

// SetRetention implements api.Retainer.
func (r retainer) SetRetention(ctx context.Context, want api.Retention) error {
	return asAPI(r.Store.SetRetention(ctx, raftstore.Retention(want)))
}

// asAPI shows the store's errors as package api knows them.
func asAPI(err error) error {
	switch {
	case errors.Is(err, raftstore.ErrUnknown):
		return fmt.Errorf("%w: %w", backend.ErrUnknown, err) // whatever came after: an earlier try may have been written
	case errors.Is(err, raftstore.ErrNoLeader):
		return fmt.Errorf("%w: %w", backend.ErrNoLeader, err)
	case errors.Is(err, raftstore.ErrOverloaded):
		return fmt.Errorf("%w: %w", backend.ErrOverloaded, err)
	case errors.Is(err, raftstore.ErrClock):
		return fmt.Errorf("%w: %w", backend.ErrClock, err)
	}
	return err
}
