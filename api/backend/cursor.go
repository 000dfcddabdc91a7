package backend

import (
	"context"
	"net/http"
	"strings"

	"rutter/api/internal/rest"
	"rutter/log"
)

// Cursors checks cursors; a Store implements it.
type Cursors interface {
	Head() log.Cursor
	CheckCursor(c log.Cursor) error
	Consistent(ctx context.Context) (log.Seq, error)
}

// IsCursor distinguishes a cursor from a seq.
func IsCursor(text string) bool { return strings.Contains(text, ".") }

// SeqParameter reads a parameter that is a seq or a cursor. It checks a cursor against
// the log. 0: the parameter is missing.
func SeqParameter(ctx context.Context, store Cursors, p rest.Parameters, name string) (log.Seq, error) {
	text := p.Text(name)
	if !IsCursor(text) {
		seq, err := p.Number(name, 0, 0, 1<<64-1)
		if number, hash := strings.CutPrefix(text, "#"); hash {
			if seq, err := log.ParseSeq(number); err == nil {
				return seq, nil
			}
		}
		return log.Seq(seq), err
	}
	cursor, err := log.ParseCursor(text)
	if err != nil {
		return 0, rest.BadParameter(name, log.ElementInvalid, "send what a server gave as "+rest.HeaderCursor+" or as the id of an event, or a seq", "%v", err)
	}
	return cursor.Seq, CheckCursor(ctx, store, cursor)
}

// CheckCursor checks that the log has a cursor. If this server has not applied it yet,
// CheckCursor waits: a client that moves between servers may be ahead of this one. A
// cursor beyond the leader's head belongs to no log (SAFETY P4, F5).
func CheckCursor(ctx context.Context, store Cursors, cursor log.Cursor) error {
	if store.Head().Cluster == cursor.Cluster {
		if err := Reach(ctx, store, cursor.Seq); err != nil {
			return err
		}
	}
	return store.CheckCursor(cursor)
}

// Reach waits until this server has applied what the leader has now, if it has not applied
// seq yet. A seq that is beyond the head after it is beyond the leader's head.
func Reach(ctx context.Context, store Cursors, seq log.Seq) error {
	head := store.Head()
	if head.Seq >= seq {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, WaitTime)
	defer cancel()
	if _, err := store.Consistent(ctx); err != nil {
		return rest.Fail(http.StatusServiceUnavailable, rest.CodeNotYet, "try again, or another server", "this server is at seq %d, before the cursor's %d, and no leader could be asked: %v", head.Seq, seq, err)
	}
	return nil
}
