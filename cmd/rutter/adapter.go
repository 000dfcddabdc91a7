package main

import (
	"errors"
	"fmt"

	"rutter/api"
	"rutter/log"
	"rutter/raftstore"
)

// Enqueue lets package api's write stream queue changes without waiting.
func (a storeAdapter) Enqueue(c *log.Change, done func(log.Result, error)) error {
	return asAPI(a.Store.Enqueue(c, func(result log.Result, err error) { done(result, asAPI(err)) }))
}

// asAPI shows the store's errors as package api knows them.
func asAPI(err error) error {
	switch {
	case errors.Is(err, raftstore.ErrUnknown):
		return err // whatever came after: an earlier try may have been written
	case errors.Is(err, raftstore.ErrNoLeader):
		return fmt.Errorf("%w: %w", api.ErrNoLeader, err)
	case errors.Is(err, raftstore.ErrOverloaded):
		return fmt.Errorf("%w: %w", api.ErrOverloaded, err)
	}
	return err
}
