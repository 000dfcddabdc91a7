package logserver

import (
	"fmt"
	"net/http"

	"rutter/api/backend"
	"rutter/api/internal/rest"
	"rutter/log"
)

// Every position in an answer is a cursor, and is checked when a client sends it back:
// a restored log or a rebuilt server has other entries under the same seqs (SAFETY F6).
// ?after, ?seq and ?min_seq also take a bare seq, because people type them. It cannot
// be checked, because it does not name a log. No part of Rutter sends a bare seq to
// continue.

// From reads where to begin. cursor is that of after or cursor, or zero. Without either
// the answer begins at the floor. Errors: log.ErrAhead, log.ErrCompacted, those of
// CheckCursor, and refusals of the parameters.
func From(r *http.Request, store Store, p rest.Parameters) (cursor log.Cursor, after log.Seq, err error) {
	if p.Has("cursor") && p.Has("after") {
		return cursor, 0, rest.BadParameter("cursor", log.ElementInvalid, "send one of them", "cursor and after say the same twice")
	}
	text, name := p.Text("after"), "after"
	if p.Has("cursor") {
		text, name = p.Text("cursor"), "cursor"
	}
	if p.Has("cursor") || backend.IsCursor(text) {
		if cursor, err = log.ParseCursor(text); err != nil {
			return cursor, 0, rest.BadParameter(name, log.ElementInvalid, "send what a server gave as "+rest.HeaderCursor+" or as the id of an event, or use after=SEQ", "%v", err)
		}
		return cursor, cursor.Seq, backend.CheckCursor(r.Context(), store, cursor)
	}
	floor := store.Floor()
	seq, err := p.Number("after", uint64(floor), 0, 1<<64-1)
	if err != nil {
		return cursor, 0, err
	}
	after = log.Seq(seq)
	// Tails of older programs continue with a bare seq, at a server that may be behind.
	if err := backend.Reach(r.Context(), store, after); err != nil {
		return cursor, 0, err
	}
	if head := store.Head().Seq; after > head {
		return cursor, 0, fmt.Errorf("after seq %d, and the head is %d: %w", after, head, log.ErrAhead)
	}
	if after < floor {
		return cursor, 0, fmt.Errorf("after seq %d, and the floor is %d: %w", after, floor, log.ErrCompacted)
	}
	return cursor, after, nil
}

// lastEvent reads the header with which a client of server-sent events reconnects. The
// client repeats its query as well, whose start is then ignored.
func lastEvent(r *http.Request, store Store, id string) (log.Cursor, error) {
	cursor, err := log.ParseCursor(id)
	if err != nil {
		return cursor, rest.Fail(http.StatusBadRequest, rest.CodeBadRequest, "send the id of an event as this server sent it; or leave it out and send ?after=SEQ, which is not checked to be of this log", "header Last-Event-ID: %v", err)
	}
	return cursor, backend.CheckCursor(r.Context(), store, cursor)
}
