package logread

import (
	"errors"
	"fmt"

	"rutter/log"
)

// Position is the entry after which a stream continues.
type Position struct {
	log.Cursor
	// Known: Chain is valid. A position from a bare seq has only the cluster, until an
	// entry is read.
	Known bool
}

// PositionAfter returns the position after seq in the store's log.
func PositionAfter(store Store, seq log.Seq) Position {
	head := store.Head()
	if seq == head.Seq {
		return Position{Cursor: head, Known: true}
	}
	return Position{Cursor: log.Cursor{Cluster: head.Cluster, Seq: seq}, Known: seq == 0}
}

// Check returns nil if the position is of the store's log. It is called after a read,
// so that the log cannot be replaced between the check and the read.
func (p *Position) Check(store Store) error {
	if !p.Known {
		if head := store.Head(); head.Cluster != p.Cluster {
			return fmt.Errorf("cursor %s: this is cluster %s: %w", p.Cursor, head.Cluster, log.ErrOtherLog)
		}
		return nil
	}
	err := store.CheckCursor(p.Cursor)
	if errors.Is(err, log.ErrCompacted) {
		return nil // the floor was raised above it: the read was right, and the next one returns the error
	}
	return err
}

// Advance moves the position to an entry that was read.
func (p *Position) Advance(seq log.Seq, chain log.ChainPrefix) {
	p.Seq, p.Chain, p.Known = seq, chain, true
}
