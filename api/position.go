package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"rutter/api/backend"
	"rutter/api/rest"
	"rutter/log"
)

// Every position that a client is given is a cursor, and is checked when it comes
// back: a log that was restored, or a server that was rebuilt, has other entries
// under the same seqs (SAFETY F6). A bare seq is taken too, of ?after, ?seq and
// ?min_seq, since people type them: it says nothing about which log it is of, and
// nothing can be checked. Nothing of ours sends one to go on from.

// position is a place of the log that a stream goes on from.
type position struct {
	log.Cursor
	// sure: Chain is that of the log that is read. Of a bare seq only the cluster is
	// known, until an entry was read.
	sure bool
}

// lastEvent reads the header by which a client of server-sent events comes back.
// It repeats its query as well, which then says nothing.
func (s *Server) lastEvent(r *http.Request, id string) (log.Cursor, error) {
	cursor, err := log.ParseCursor(id)
	if err != nil {
		return cursor, rest.Fail(http.StatusBadRequest, rest.CodeBadRequest, "send the id of an event as this server sent it; or leave it out and send ?after=SEQ, which is not checked to be of this log", "header Last-Event-ID: %v", err)
	}
	return cursor, backend.CheckCursor(r.Context(), s.store, cursor)
}

// position is where q begins: nothing was read yet.
func (s *Server) position(q *logQuery) position {
	head := s.store.Head()
	at := position{Cursor: log.Cursor{Cluster: head.Cluster, Seq: q.after}, sure: q.after == 0}
	switch {
	case q.cursor != (log.Cursor{}):
		at = position{Cursor: q.cursor, sure: true}
	case q.after == head.Seq:
		at = position{Cursor: head, sure: true}
	}
	return at
}

// scanAt is scan from a position, which it moves along. What was read is of the log
// that the position is of, or there is an error: it is checked behind the reading,
// so that the log cannot have become another one between.
func (s *Server) scanAt(ctx context.Context, q *logQuery, at *position) (found, error) {
	f, err := s.scan(ctx, q, at.Seq)
	if other := s.isOf(at); other != nil {
		return found{place: at.Seq}, other
	}
	if f.place > at.Seq {
		at.Seq, at.Chain, at.sure = f.place, f.chain, true
	}
	return f, err
}

// isOf is nil if this server's log is the one that a position is of.
func (s *Server) isOf(at *position) error {
	if !at.sure {
		if head := s.store.Head(); head.Cluster != at.Cluster {
			return fmt.Errorf("cursor %s: this is cluster %s: %w", at.Cursor, head.Cluster, log.ErrOtherLog)
		}
		return nil
	}
	err := s.store.CheckCursor(at.Cursor)
	if errors.Is(err, log.ErrCompacted) {
		return nil // the floor has passed it since: what was read is right, and whatever comes next says so
	}
	return err
}
