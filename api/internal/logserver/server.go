package logserver

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/internal/logread"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// Bounds of GET /log.
const (
	maxLines   = 1_000_000        // lines of one answer that is not followed
	lineBuffer = 64 << 10         // bytes gathered before a write
	lineQuiet  = 15 * time.Second // an empty line at least this often, so that proxies and clients know
	lagLook    = time.Second      // a follower of a server that lags is sent away within this time
)

// Store is the log and its state, as this package reads them; see logread.Store.
type Store interface {
	logread.Store
	// View calls fn with the state and the head that it is at, while nothing
	// is applied. fn must not call the store, keep the state, or be slow.
	View(fn func(state *projections.State, head log.Cursor))
	// Changed returns a channel that is closed when more is applied than at the call.
	Changed() <-chan struct{}
	// Consistent returns when this server has applied everything that any server
	// acknowledged before the call, with the seq that it has then.
	Consistent(ctx context.Context) (log.Seq, error)
}

// Past knows which entries had been written at a time.
type Past interface {
	// SeqAt returns the last seq of a time or before. Errors: log.ErrCompacted.
	SeqAt(at log.Time) (log.Seq, error)
}

// Config configures a Server. All fields except Past are required.
type Config struct {
	Store    Store
	Tail     *logread.Tail // of Store
	Past     Past          // nil: the log's time was never set
	Logger   *slog.Logger
	Guard    *guard.Guard
	Streams  *guard.Streams  // of all kinds
	Draining <-chan struct{} // closed when streams must end
	// Fresh waits as a query's consistent and min_seq ask.
	Fresh func(*http.Request, rest.Parameters) error
	// ErrorOf turns any error into an answer.
	ErrorOf func(error) *rest.Error
	// Lagging returns why this server is too far behind the log to be followed, or nil. Nil:
	// never.
	Lagging func() error
}

// lagging returns the error of one who would follow a server that lags, or nil.
func (s *Server) lagging(q *query) error {
	if !q.follow || s.cfg.Lagging == nil {
		return nil
	}
	if err := s.cfg.Lagging(); err != nil {
		return rest.Fail(http.StatusServiceUnavailable, rest.CodeNotReady, "follow another server from the same cursor", "%v", err)
	}
	return nil
}

// Server answers GET /log. See the package comment.
type Server struct {
	cfg   Config
	store Store         // of cfg, as the next ones
	tail  *logread.Tail //
	guard *guard.Guard  //
}

// New returns a Server. It starts nothing and needs no Close.
func New(cfg Config) *Server {
	return &Server{cfg: cfg, store: cfg.Store, tail: cfg.Tail, guard: cfg.Guard}
}

// Get answers GET /log.
func (s *Server) Get(w http.ResponseWriter, r *http.Request) error {
	q, err := s.parse(r)
	if err != nil {
		return err
	}
	if err := s.lagging(q); err != nil {
		return err
	}
	if wantsBinary(r) {
		if q.sees != nil {
			return s.guard.Refuse(r.RemoteAddr, &matrix.Refusal{Who: guard.GrantOf(r).Who, What: "read the log in its binary form", Missing: "its chain needs every entry: read it as lines"})
		}
		if !r.URL.Query().Has("limit") {
			q.limit = 1<<64 - 1 // a copy reads all of it
		}
		return s.binaryLog(w, r, q)
	}
	at := q.position(s.store)
	first, err := s.scanAt(r.Context(), q, &at) // this error has its own form of answer
	if err != nil {
		return err
	}
	done, err := s.cfg.Streams.Enter()
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
	w.Header().Set(rest.HeaderCursor, head.String())
	rest.SetSeq(w, head.Seq)
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	out := &lines{out: rest.NewStream(w), q: q, at: at, left: 1}
	if err := s.writeLines(r.Context(), out, first); err != nil && !errors.Is(err, rest.ErrGone) {
		out.last(s.cfg.ErrorOf(err))
	}
	return nil
}
