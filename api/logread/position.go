package logread

import (
	"errors"
	"fmt"

	"rutter/log"
)

// Position is the entry after which a stream goes on.
type Position struct {
	log.Cursor
	// Known: Chain is that of the log that is read. Of a bare seq only the cluster is
	// known, until an entry was read.
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

// Check returns nil if the store's log is the one that the position is of. It is
// called after a read, so that the log cannot have become another one in between.
func (p *Position) Check(store Store) error {
	if !p.Known {
		if head := store.Head(); head.Cluster != p.Cluster {
			return fmt.Errorf("cursor %s: this is cluster %s: %w", p.Cursor, head.Cluster, log.ErrOtherLog)
		}
		return nil
	}
	err := store.CheckCursor(p.Cursor)
	if errors.Is(err, log.ErrCompacted) {
		return nil // the floor has passed it since: what was read is right, and the next read says so
	}
	return err
}

// Advance moves the position to an entry that was read.
func (p *Position) Advance(seq log.Seq, chain log.ChainPrefix) {
	p.Seq, p.Chain, p.Known = seq, chain, true
}
