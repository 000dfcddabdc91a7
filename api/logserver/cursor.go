package logserver

import (
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
// nothing can be checked. No part of Rutter sends one to go on from.

// From reads where to begin: cursor is of after, if the client named it by one, else
// zero. Without either it is the floor. Errors: log.ErrAhead, log.ErrCompacted, those of
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
	if head := store.Head().Seq; after > head {
		return cursor, 0, fmt.Errorf("after seq %d, and the head is %d: %w", after, head, log.ErrAhead)
	}
	if after < floor {
		return cursor, 0, fmt.Errorf("after seq %d, and the floor is %d: %w", after, floor, log.ErrCompacted)
	}
	return cursor, after, nil
}

// lastEvent reads the header by which a client of server-sent events comes back.
// It repeats its query as well, which then says nothing.
func lastEvent(r *http.Request, store Store, id string) (log.Cursor, error) {
	cursor, err := log.ParseCursor(id)
	if err != nil {
		return cursor, rest.Fail(http.StatusBadRequest, rest.CodeBadRequest, "send the id of an event as this server sent it; or leave it out and send ?after=SEQ, which is not checked to be of this log", "header Last-Event-ID: %v", err)
	}
	return cursor, backend.CheckCursor(r.Context(), store, cursor)
}
