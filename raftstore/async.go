package raftstore

import (
	"errors"
	"fmt"

	"rutter/log"
	"rutter/raftstore/internal/admission"
)

// Enqueue submits a change on the leader without waiting for its fate: done is
// called once with what Propose would return, from a goroutine that tells all
// of a batch, so it must neither wait nor call the store. c may be used again
// when Enqueue returns.
//
// Unlike Propose it neither looks for a leader nor tries again. Errors, after
// which done is not called and nothing was written: ErrNoLeader (this server
// does not lead: use Propose), ErrOverloaded, ErrNoRoom, ErrClock, log.ErrTooLarge. Those
// that done gets: ErrNoLeader (not written) and ErrUnknown.
func (s *Store) Enqueue(c *log.Change, done func(log.Result, error)) error {
	err := s.proposer.enqueue(c, func(o admission.Outcome) { done(o.Result, asNoLeader(o.Err)) })
	return asNoLeader(err)
}

// asNoLeader shows errNotLeader as those outside know it.
func asNoLeader(err error) error {
	if errors.Is(err, errNotLeader) && !errors.Is(err, ErrUnknown) {
		return fmt.Errorf("%w: %w", ErrNoLeader, err)
	}
	return err
}
