package feedserver

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/api/auth/audit"
	"rutter/api/auth/matrix"
	"rutter/api/internal/logread"
	"rutter/api/internal/nodemetrics"
	"rutter/api/liveness"
	"rutter/api/vmm"
	"rutter/log"
	"rutter/projections"
)

// Store is the log and its state, as the feed needs them. All methods may be called
// concurrently.
type Store interface {
	logread.Store
	// View calls fn with the state and its head, while nothing is applied. fn must not
	// call the store, keep the state, or be slow. It may keep objects of the state,
	// because they are immutable.
	View(fn func(state *projections.State, head log.Cursor))
	// Changed returns a channel that is closed when more is applied than at the call.
	Changed() <-chan struct{}
	// Consistent returns when this server has applied everything that any server
	// acknowledged before the call, with the seq that it has then.
	Consistent(ctx context.Context) (log.Seq, error)
}

// Config configures a Server. All fields except VMMs are required.
type Config struct {
	Store  Store
	Tail   *logread.Tail // of Store
	Logger *slog.Logger
	// Sessions receives the sessions of CNs with this server.
	Sessions *liveness.Table
	// VMMs takes the CNs' reports about their VMs and sends them requests; nil:
	// neither.
	VMMs *vmm.Service
	// Streams returns the number of feeds and followed logs of this server. The more
	// there are, the longer new entries are gathered before they are sent.
	Streams func() int64
	// Lagging returns why this server is too far behind the log to feed CNs, or nil. While
	// it returns an error, subscribers are sent to other servers. A nil function: never.
	Lagging func() error
	// Refuse records a refusal and returns it as an answer.
	Refuse func(remote string, refusal *matrix.Refusal) error
	// Audit takes records of sessions whose reports cannot be true.
	Audit func(audit.Record)
}

// Server serves the feed. See the package comment for its concurrency.
type Server struct{ parts }

// parts are what all subscribers of a server share. They know of a subscriber only the
// functions that it gave them.
type parts struct {
	// The fields of Config.
	store  Store
	tail   *logread.Tail
	logger *slog.Logger
	vmms   *vmm.Service
	refuse func(remote string, refusal *matrix.Refusal) error
	audit  func(audit.Record)
	// lagging is Config.Lagging, and never nil.
	lagging func() error

	metrics    *metrics
	tracker    *nodemetrics.Tracker
	sessions   *sessions
	snapshots  *snapshots
	index      *scopeIndex
	dispatcher *dispatcher
	watcher    *watcher

	ctx      context.Context // ends when all connections are cut
	cancel   context.CancelFunc
	draining chan struct{} // closed when all are sent away
	drain    sync.Once
	running  sync.WaitGroup // goroutines of the feed
	sending  atomic.Int64   // streams that are sending whole scopes, at most MaxSnapshots
	blocked  atomic.Int64   // writes that wait for a socket
}

// New returns a Server. It starts nothing and needs no Close.
func New(cfg Config) *Server {
	if cfg.Lagging == nil {
		cfg.Lagging = func() error { return nil }
	}
	s := &Server{parts{
		lagging: cfg.Lagging,
		store:   cfg.Store, tail: cfg.Tail, logger: cfg.Logger, vmms: cfg.VMMs, refuse: cfg.Refuse, audit: cfg.Audit,
		sessions: newSessions(cfg.Sessions), snapshots: newSnapshots(), index: newScopeIndex(), draining: make(chan struct{}),
		tracker: nodemetrics.New(nil),
	}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.dispatcher = newDispatcher(s.running.Go)
	s.watcher = &watcher{
		store: cfg.Store, tail: cfg.Tail, index: s.index, snapshots: s.snapshots, dispatcher: s.dispatcher, tracker: s.tracker, streams: cfg.Streams, draining: s.draining, lagging: cfg.Lagging,
	}
	s.metrics = newMetrics()
	cfg.Sessions.OnWanted(s.sessions.want)
	return s
}

// Drain tells each subscriber to connect to another server, some time apart. It may be
// called repeatedly, and does not block.
func (s *Server) Drain() { s.drain.Do(func() { close(s.draining) }) }

// Abort ends all connections at once.
func (s *Server) Abort() {
	s.cancel()
	s.watcher.abort()
}

// Wait returns when no goroutine of the feed runs. Serve and Observe must not be called
// meanwhile.
func (s *Server) Wait() { s.running.Wait() }

// Sessions returns the newest session of each CN with this server, sorted by CN.
func (s *Server) Sessions() []Session {
	all := s.sessions.all()
	slices.SortFunc(all, func(a, b *session) int { return a.cn.Compare(b.cn) })
	views := make([]Session, 0, len(all))
	for _, a := range all {
		views = append(views, a.view())
	}
	return views
}

// Session returns the newest session of a CN with this server, if it has one.
func (s *Server) Session(cn log.UUID) (Session, bool) {
	a := s.sessions.get(cn)
	if a == nil {
		return Session{}, false
	}
	return a.view(), true
}

// SessionCount returns how many CNs have a session with this server.
func (s *Server) SessionCount() int { return s.sessions.count() }

// Behind returns how many CNs in session with this server are behind the log.
func (s *Server) Behind() int { return nodemetrics.CountBehind(s.sessions.nodes()) }

// Collectors returns the metrics of the feed.
func (s *Server) Collectors() []prometheus.Collector { return s.metrics.collectors(s) }
