package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/backend"
	"rutter/api/rest"
	"rutter/log"
	logquery "rutter/log/query"
)

// Bounds of GET /log.
const (
	maxLines   = 1_000_000        // lines of one answer that is not followed
	lineBuffer = 64 << 10         // bytes gathered before a write
	lineQuiet  = 15 * time.Second // an empty line at least this often, so that proxies and clients know
)

// logQuery is what GET /log was asked for.
type logQuery struct {
	after   log.Seq
	cursor  log.Cursor // of after, if the client named it by one; else zero
	limit   uint64
	follow  bool
	events  bool // server-sent events in place of lines of JSON
	filter  *logquery.Filter
	matcher *logquery.Matcher // of filter
	// sees, if not nil, says which events may be shown to who asks.
	sees func(*log.Event) bool
	// uuids, if not nil, are such that each entry that is selected has one of them
	// in a field of its object, before or after it.
	uuids    []log.UUID
	accounts guard.Accounts // of who asks
	counting bool           // lines are not wanted
}

// bind limits the query to what who asks may see, and says whose work it is.
func (q *logQuery) bind(s *Server, g guard.Grant) {
	q.accounts = s.guard.Accounts(g.Who)
	q.matcher = q.filter.Matcher()
	switch {
	case g.Answer == matrix.Own:
		q.sees = func(e *log.Event) bool { return matrix.SeesEvent(g.Who, g.Answer, e) }
		q.matcher.Within(g.Who.Owners)
		q.uuids = g.Who.Owners
	case len(q.filter.Owners) > 0:
		q.uuids = q.filter.Owners
	case len(q.filter.Networks) > 0:
		q.uuids = q.filter.Networks
	}
}

// log answers GET /log: entries as lines of JSON.
func (s *Server) log(w http.ResponseWriter, r *http.Request) error {
	q, err := s.logQuery(r)
	if err != nil {
		return err
	}
	if wantsBinary(r) {
		if q.sees != nil {
			return s.guard.Refuse(r.RemoteAddr, &matrix.Refusal{Who: guard.GrantOf(r).Who, What: "read the log in its binary form", Missing: "its chain needs every entry: read it as lines"})
		}
		if !r.URL.Query().Has("limit") {
			q.limit = 1<<64 - 1 // it has nobody's patience in mind
		}
		return s.binaryLog(w, r, q)
	}
	at := s.position(q)
	first, err := s.scanAt(r.Context(), q, &at) // a place that cannot be served has an answer of its own
	if err != nil {
		return err
	}
	done, err := s.stream()
	if err != nil {
		return err
	}
	defer done()
	head := s.store.Head()
	w.Header().Set("Content-Type", "application/x-ndjson")
	if q.events {
		w.Header().Set("Content-Type", eventStream)
		w.Header().Set("Cache-Control", "no-cache")
	}
	w.Header().Set(backend.HeaderCursor, head.String())
	backend.SetSeq(w, head.Seq)
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	out := &lines{w: w, control: http.NewResponseController(w), q: q, at: at, left: 1}
	// The body was read; a later read error would only end the request.
	_ = out.control.SetReadDeadline(time.Time{})
	if err := s.writeLog(r.Context(), out, first); err != nil && !errors.Is(err, errGone) {
		out.last(err)
	}
	return nil
}

// logQuery reads the query of GET /log.
func (s *Server) logQuery(r *http.Request) (*logQuery, error) {
	p, err := rest.Query(r, append(logquery.Names(), "after", "cursor", "follow", "limit", "last")...)
	if err != nil {
		return nil, err
	}
	q := &logQuery{events: wantsEvents(r)}
	if q.follow, err = p.Flag("follow"); err != nil {
		return nil, err
	}
	if q.limit, err = p.Number("limit", maxLines, 1, maxLines); err != nil {
		return nil, err
	}
	if q.follow && !p.Has("limit") {
		q.limit = 1<<64 - 1
	}
	if q.filter, err = logquery.Parse(p.Values()); err != nil {
		return nil, badFilter(err)
	}
	if err := s.read.Fresh(r, p); err != nil {
		return nil, err
	}
	q.filter.TimeSet = s.timeSet()
	q.bind(s, guard.GrantOf(r))
	if begun, err := s.begin(r, p, q); begun || err != nil {
		return q, err
	}
	return q, s.from(r, p, q)
}

// from reads where to begin.
func (s *Server) from(r *http.Request, p rest.Parameters, q *logQuery) (err error) {
	if p.Has("cursor") && p.Has("after") {
		return rest.BadParameter("cursor", log.ElementInvalid, "send one of them", "cursor and after say the same twice")
	}
	text, name := p.Text("after"), "after"
	if p.Has("cursor") {
		text, name = p.Text("cursor"), "cursor"
	}
	if p.Has("cursor") || backend.IsCursor(text) {
		if q.cursor, err = log.ParseCursor(text); err != nil {
			return rest.BadParameter(name, log.ElementInvalid, "send what a server gave as "+backend.HeaderCursor+" or as the id of an event, or use after=SEQ", "%v", err)
		}
		q.after = q.cursor.Seq
		return backend.CheckCursor(r.Context(), s.store, q.cursor)
	}
	after, err := p.Number("after", 0, 0, 1<<64-1)
	if err != nil {
		return err
	}
	q.after = log.Seq(after)
	if head := s.store.Head().Seq; q.after > head {
		return fmt.Errorf("after seq %d, and the head is %d: %w", q.after, head, log.ErrAhead)
	}
	floor := s.store.Floor()
	if !p.Has("after") {
		q.after = floor // all that is kept
	}
	if q.after < floor {
		return fmt.Errorf("after seq %d, and the floor is %d: %w", q.after, floor, log.ErrCompacted)
	}
	return nil
}

// badFilter turns a refusal of package query into an answer's.
func badFilter(err error) error {
	var refused *logquery.ParameterError
	if !errors.As(err, &refused) {
		return err
	}
	return rest.BadParameter(refused.Name, log.ElementInvalid, refused.Remedy, "%s", refused.Reason)
}

// errGone: the client went, or took nothing for answerTime.
var errGone = errors.New("api: the client went")

// writeLog writes what was found and what follows it, until the limit, the head
// (if the log is not followed), or the end of the client or the server.
func (s *Server) writeLog(ctx context.Context, out *lines, f found) (err error) {
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
				return errGone
			}
			if over, err := s.usedUp(ctx, out, f); over || err != nil {
				return err
			}
			if f, err = s.scanAt(ctx, out.q, &out.at); err != nil {
				return err
			}
		}
		until := out.q.filter.UntilSeq
		if err := out.flush(); err != nil || !out.q.follow || until > 0 && f.place >= until {
			return err
		}
		select {
		case <-ctx.Done():
			return errGone
		case <-s.draining:
			return nil
		case <-changed:
		case <-quiet.C:
			out.quiet()
		}
		if f, err = s.scanAt(ctx, out.q, &out.at); err != nil {
			return err
		}
	}
}

// usedUp reports whether the answer ends because who asks has used up its budget:
// then its last line says where to go on. Who follows the log waits instead.
func (s *Server) usedUp(ctx context.Context, out *lines, f found) (over bool, err error) {
	if f.left > 0 && out.left > 0 {
		return false, nil
	}
	head := s.store.Head()
	if until := out.q.filter.UntilSeq; f.place >= head.Seq || until > 0 && f.place >= until {
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
			return false, errGone
		case <-s.draining:
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
	w       http.ResponseWriter
	control *http.ResponseController
	q       *logQuery
	at      position // of what is looked at next
	written uint64
	left    int64 // bytes that may still be sent, when the last were
	buf     []byte
}

// add writes an entry; full means that the limit is reached.
func (l *lines) add(it *item) (full bool, err error) {
	line, err := it.line()
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

// quiet adds what says nothing, so that all on the way know that somebody is there.
func (l *lines) quiet() {
	if l.q.events {
		l.buf = append(l.buf, ':', '\n')
	}
	l.buf = append(l.buf, '\n')
}

// flush writes what was gathered.
func (l *lines) flush() error {
	if len(l.buf) == 0 {
		// The header goes out at once, so that a follower knows that it follows.
		_ = l.control.Flush()
		return nil
	}
	_ = l.control.SetWriteDeadline(time.Now().Add(answerTime))
	_, err := l.w.Write(l.buf)
	l.left = l.q.accounts.Sent(len(l.buf))
	l.buf = l.buf[:0]
	if err == nil {
		err = l.control.Flush()
	}
	if err != nil {
		return errGone
	}
	return nil
}

// next ends the answer with a line that says where to go on: by ?cursor=, with the
// same filters.
func (l *lines) next(place log.Cursor) error {
	line, err := rest.JSONLine(map[string]log.Cursor{"next": place})
	if err != nil {
		return err
	}
	if l.q.events {
		// An EventSource comes back with the id, whatever it asked for at first.
		line = fmt.Appendf(nil, "id: %s\nevent: next\ndata: %s\n", place, line)
	}
	l.buf = append(l.buf, line...)
	return l.flush()
}

// last ends the answer with a line that says why it is not complete.
func (l *lines) last(err error) {
	line, jsonErr := rest.JSONLine(map[string]*rest.Error{"error": backend.ErrorOf(err)})
	if jsonErr == nil {
		if l.q.events {
			line = append(append([]byte("event: error\ndata: "), line...), '\n')
		}
		l.buf = append(l.buf, line...)
		_ = l.flush() // nobody is left to hear of it
	}
}
