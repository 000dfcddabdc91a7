package logserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rutter/api/internal/logread"
	"rutter/api/internal/rest"
	"rutter/log"
)

// writeLines writes what was found and the later entries, until the limit, the head (if
// the log is not followed), or the end of the client or the server.
func (s *Server) writeLines(ctx context.Context, out *lines, f found) (err error) {
	quiet := time.NewTicker(lineQuiet)
	defer quiet.Stop()
	for {
		changed := s.store.Changed()
		for f.looked {
			for _, it := range f.items {
				if full, err := out.add(it); full || err != nil {
					return errors.Join(err, out.flush())
				}
			}
			if f.past {
				return out.flush()
			}
			if ctx.Err() != nil {
				return rest.ErrGone
			}
			if over, err := s.usedUp(ctx, out, f); over || err != nil {
				return err
			}
			if f, err = s.scanAt(ctx, out.q, &out.at); err != nil {
				return err
			}
		}
		until := out.q.filter.UntilSeq
		if err := out.flush(); err != nil || !out.q.follow || until > 0 && f.upTo >= until {
			return err
		}
		why, err := s.await(ctx, out.q, changed, quiet.C)
		if why == ended {
			return err
		}
		if why == wasQuiet {
			out.quiet()
		}
		if f, err = s.scanAt(ctx, out.q, &out.at); err != nil {
			return err
		}
	}
}

// awaited is why a follower's wait was over.
type awaited int

const (
	mayHaveMore awaited = iota
	wasQuiet
	ended // of the answer
)

// await returns when there may be more, or when it was quiet. The answer ends with the
// client, with the server, and when a server lags: the client goes on at another one.
func (s *Server) await(ctx context.Context, q *query, changed <-chan struct{}, quiet <-chan time.Time) (awaited, error) {
	look := time.NewTicker(lagLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ended, rest.ErrGone
		case <-s.cfg.Draining:
			return ended, nil
		case <-changed:
			return mayHaveMore, nil
		case <-quiet:
			return wasQuiet, nil
		case <-look.C:
			if s.lagging(q) != nil {
				return ended, nil
			}
		}
	}
}

// usedUp reports whether the answer must end because the client has used up its budget:
// then its last line has the cursor to continue from. A client that follows the log
// waits instead.
func (s *Server) usedUp(ctx context.Context, out *lines, f found) (over bool, err error) {
	if f.left > 0 && out.left > 0 {
		return false, nil
	}
	head := s.store.Head()
	if until := out.q.filter.UntilSeq; f.upTo >= head.Seq || until > 0 && f.upTo >= until {
		return false, nil
	}
	if !out.q.follow {
		return true, out.next(out.at.Cursor)
	}
	if err := out.flush(); err != nil {
		return false, err
	}
	for exceeded := rest.ExceededOf(out.q.accounts.Admit()); exceeded != nil; exceeded = rest.ExceededOf(out.q.accounts.Admit()) {
		s.guard.Pause(ctx, min(exceeded.Wait, lineQuiet))
		select {
		case <-ctx.Done():
			return false, rest.ErrGone
		case <-s.cfg.Draining:
			return true, nil
		default:
		}
		out.quiet()
		if err := out.flush(); err != nil {
			return false, err
		}
	}
	out.left = 1
	return false, nil
}

// lines writes lines of JSON.
type lines struct {
	out     *rest.Stream
	q       *query
	at      logread.Position // of the next entry to read
	written uint64
	left    int64 // bytes that may still be sent, when the last were
	buf     []byte
}

// add writes an entry; full means that the limit is reached.
func (l *lines) add(it *logread.Decoded) (full bool, err error) {
	line, err := it.Line()
	if err != nil {
		return false, err
	}
	if l.q.events {
		l.buf = appendEvent(l.buf, l.at.Cluster, it, line)
	} else {
		l.buf = append(l.buf, line...)
	}
	l.written++
	if len(l.buf) >= lineBuffer {
		err = l.flush()
	}
	return l.written >= l.q.limit, err
}

// quiet writes an empty line or comment, so that proxies and the client see that the
// server is alive.
func (l *lines) quiet() {
	if l.q.events {
		l.buf = append(l.buf, ':', '\n')
	}
	l.buf = append(l.buf, '\n')
}

// flush writes what was gathered.
func (l *lines) flush() error {
	if len(l.buf) == 0 {
		// The header is sent at once, so that a follower sees that it follows.
		_ = l.out.Flush()
		return nil
	}
	err := l.out.Write(l.buf)
	l.left = l.q.accounts.Sent(len(l.buf))
	l.buf = l.buf[:0]
	if err != nil {
		return err
	}
	return l.out.Flush()
}

// next ends the answer with a line that has the cursor to continue from, with the same
// filters.
func (l *lines) next(place log.Cursor) error {
	line, err := rest.JSONLine(map[string]log.Cursor{"next": place})
	if err != nil {
		return err
	}
	if l.q.events {
		// An EventSource reconnects with the id, independent of its first request.
		line = fmt.Appendf(nil, "id: %s\nevent: next\ndata: %s\n", place, line)
	}
	l.buf = append(l.buf, line...)
	return l.flush()
}

// last ends the answer with a line that says why it is incomplete.
func (l *lines) last(why *rest.Error) {
	line, jsonErr := rest.JSONLine(map[string]*rest.Error{"error": why})
	if jsonErr == nil {
		if l.q.events {
			line = append(append([]byte("event: error\ndata: "), line...), '\n')
		}
		l.buf = append(l.buf, line...)
		_ = l.flush() // the client is gone
	}
}

// appendEvent appends an entry as a server-sent event, whose id is its cursor.
func appendEvent(b []byte, cluster log.UUID, it *logread.Decoded, line []byte) []byte {
	b = append(b, "id: "...)
	b = append(b, log.Cursor{Cluster: cluster, Seq: it.Seq, Chain: it.Hash.Prefix()}.String()...)
	b = append(b, "\nevent: "...)
	b = append(b, it.Head.Kind.String()...)
	b = append(b, '.')
	b = append(b, it.Head.Action.String()...)
	b = append(b, "\ndata: "...)
	b = append(b, line...) // one line, which ends with a newline
	return append(b, '\n')
}
