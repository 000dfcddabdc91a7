package api

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/logread"
	"rutter/api/rest"
)

// Bounds of GET /log.
const (
	maxLines   = 1_000_000        // lines of one answer that is not followed
	lineBuffer = 64 << 10         // bytes gathered before a write
	lineQuiet  = 15 * time.Second // an empty line at least this often, so that proxies and clients know
)

// logServer answers GET /log: as lines of JSON, as server-sent events, or in frames as
// entries are stored. It starts nothing; a stream ends with its request, or when the
// server drains.
type logServer struct {
	store    Store
	tail     *logread.Tail // of store
	past     Past          // nil: the log's time was never set
	logger   *slog.Logger
	streams  *streams
	draining <-chan struct{}
	guard    *guard.Guard
	// fresh waits as a query asks; see stateReader.fresh.
	fresh func(*http.Request, rest.Parameters) error
}

func newLogServer(s *Server) *logServer {
	return &logServer{
		store: s.store, tail: s.tail, past: s.cfg.Past, logger: s.logger, streams: &s.streams, draining: s.draining, guard: s.guard,
		fresh: s.read.fresh,
	}
}

// get answers GET /log.
func (s *logServer) get(w http.ResponseWriter, r *http.Request) error {
	q, err := s.query(r)
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
	at := q.position(s.store)
	first, err := s.scanAt(r.Context(), q, &at) // a position that cannot be served has an answer of its own
	if err != nil {
		return err
	}
	done, err := s.streams.enter()
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
	w.Header().Set(headerCursor, head.String())
	setSeq(w, head.Seq)
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	out := &lines{w: w, control: http.NewResponseController(w), q: q, at: at, left: 1}
	// The body was read; a later read error would only end the request.
	_ = out.control.SetReadDeadline(time.Time{})
	if err := s.writeLines(r.Context(), out, first); err != nil && !errors.Is(err, errGone) {
		out.last(err)
	}
	return nil
}
