// Package logread reads the log for all streams of a server: the feed of compute nodes,
// GET /log, and requests for the scopes of a change.
//
// It owns the newest entries in decoded form (Tail), so that an entry is read, decoded
// and encoded as a frame or a line once for all readers. It also owns the check that a
// stream continues in the log in which it began (Position). It knows nothing of HTTP,
// of filters or of sessions. A reader keeps only its position.
package logread

import (
	"errors"

	"rutter/log"
)

// Store is the log, as this package reads it. All methods may be called concurrently.
type Store interface {
	// Head is the last entry that this server has applied.
	Head() log.Cursor
	// Floor is the lowest cursor that can be served: entries from Floor+1 on are kept.
	Floor() log.Seq
	// Entries returns up to limit entries after a seq, dense, never ending
	// within a change, even if a change alone is more than limit; none if there
	// are none. Errors: log.ErrCompacted, log.ErrAhead.
	Entries(after log.Seq, limit int) ([]log.Entry, error)
	// CheckCursor: nil, log.ErrOtherLog, log.ErrAhead or log.ErrCompacted.
	CheckCursor(c log.Cursor) error
}

// refuses reports whether an error says that the log does not have a cursor; others
// say nothing about it.
func refuses(err error) bool {
	return errors.Is(err, log.ErrOtherLog) || errors.Is(err, log.ErrAhead) || errors.Is(err, log.ErrCompacted) || errors.Is(err, log.ErrCorrupt)
}
