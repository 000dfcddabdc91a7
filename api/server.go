package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/auth/webcheck"
	"rutter/api/backend"
	"rutter/api/feedserver"
	"rutter/api/internal/logread"
	"rutter/api/internal/logserver"
	"rutter/api/internal/nodes"
	"rutter/api/internal/overview"
	"rutter/api/internal/rest"
	"rutter/api/liveness"
	"rutter/api/support"
	"rutter/api/vmm"
	"rutter/log"
	"rutter/log/budget"
	"rutter/projections"
)

// Limits of the API. Input of clients is bounded before it is parsed.
const (
	MaxBody   = 1 << 20  // bytes of a request's body
	MaxHeader = 64 << 10 // bytes of a request's header
	MaxList   = 1000     // objects in one answer (spec/napi.md section 3.2)

	headerTime = 10 * time.Second  // for a request's header
	bodyTime   = 30 * time.Second  // for a request's body
	idleTime   = 120 * time.Second // between two requests of a connection
	drainTime  = 10 * time.Second  // for handlers to end when the server stops
)

// Config says what a Server serves. Store is required.
type Config struct {
	Store backend.Store
	// NewID makes ids for the changes of clients that send none. Default: UUIDs of
	// version 7 by this machine's clock.
	NewID   func() (log.UUID, error)
	Cluster Cluster // nil: changes of membership are answered with 501
	Backups Backups // nil: GET /snapshot is answered with 501
	// Scheduled is the schedule of backups; nil: there is none.
	Scheduled Scheduled
	// Upgrader knows the feature versions; nil: 501.
	Upgrader Upgrader
	// Retainer reads and sets how much of the log is kept; nil: 501.
	Retainer Retainer
	// Past answers ?at=, /log/state, /log/diff and /log/history; nil: 501.
	Past   backend.Past
	Logger *slog.Logger
	// Version of the program, for /status.
	Version string
	// Identify returns the identity of a request. The default is that of the
	// connection's certificate, or matrix.Local on a listener without TLS.
	Identify func(*http.Request) matrix.Identity
	// Actor returns the actor of the events that a request causes. The default is that
	// of the connection's identity, or "anonymous@ADDRESS" without a certificate.
	Actor func(*http.Request) string
	// Audit receives refusals and authentications. It may be nil.
	Audit guard.Auditor
	// Limits bound what one address or identity may have; zero: guard.DefaultLimits.
	Limits guard.Limits
	// Budgets bound the work of reads; nil: those of budget.Table. Meters are the
	// meters of other packages, for /metrics.
	Budgets budget.Set
	Meters  []*budget.Meter
	// Age returns the time since this server last knew that it was up to date, for the
	// header Rutter-Age; nil leaves the header out.
	Age func() time.Duration
	// Collectors are added to /metrics.
	Collectors []prometheus.Collector
	// Sessions receives the sessions of CNs with this server; default: a new table.
	Sessions *liveness.Table
	// Fabric waits for CNs; nil: such requests get 501.
	Fabric nodes.Fabric
	// VMMs keeps the states of VMMs and VMs; nil: doorbells and calls get 501, and the
	// reports of CNs about VMs are ignored. Its collectors are added to /metrics.
	VMMs *vmm.Service
	// Warnings returns what an operator must act on, for /readyz?verbose and /metrics:
	// certificates near their end, ports without TLS. nil: nothing.
	Warnings func() []string
	// Lines returns more lines for /readyz?verbose; nil: there are none.
	Lines func() []string
	// CertificateEnd returns when the first of this server's certificates ends, zero without
	// any; nil: it has none.
	CertificateEnd func() time.Time
	// Support has what this server says of itself to operators; nil: 501.
	Support *support.Source
	// Zone is the name of the zone of this server, for compute nodes of the same one; "": it
	// has none.
	Zone string
	// Lagging returns why this server is too far behind the log to feed compute nodes, or
	// nil; a nil function: never.
	Lagging func() error
	// Directory returns where the APIs of all servers are; nil: 501.
	Directory func(ctx context.Context) []Place
	// ReadOnly refuses every change, and the feeds of CNs. It is for a log that no
	// cluster continues.
	ReadOnly bool
	// Names are what this server is called besides its addresses: requests by another
	// name are refused.
	Names webcheck.Names
	// Mounts are the other surfaces. The limits of every route apply to
	// them.
	Mounts []Mount
}

// Surface is everything that another surface serves, with its rows of the matrix.
type Surface = rest.Table

// Mount is a surface under a path of the API.
type Mount struct {
	Path  string // begins with a slash and ends without one
	Table *Surface
	// Strip: the path stands before the patterns of Table. Else those patterns are
	// served that begin with it.
	Strip bool
}

func (c Config) withDefaults() (Config, error) {
	if c.Store == nil {
		return c, errors.New("api: Config.Store is missing")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.NewID == nil {
		c.NewID = rest.NewChangeID
	}
	if c.Warnings == nil {
		c.Warnings = func() []string { return nil }
	}
	if c.Lines == nil {
		c.Lines = func() []string { return nil }
	}
	if c.Sessions == nil {
		c.Sessions = liveness.NewTable(uint64(time.Now().UnixNano()), time.Now)
	}
	return c, nil
}

// Server answers HTTP requests. See the package comment for its concurrency.
type Server struct {
	cfg       Config        // immutable
	store     backend.Store // cfg.Store
	logger    *slog.Logger
	metrics   *metrics
	tail      *logread.Tail
	feed      *feedserver.Server
	logs      *logserver.Server
	barrier   *nodes.Barrier
	nodes     *nodes.Routes
	guard     *guard.Guard
	read      *backend.Reader
	write     *backend.Writer
	described *describedRoutes
	support   *supportRoutes
	health    *healthRoutes
	overview  *overview.Overview
	mux       *http.ServeMux
	handler   http.Handler // of every path, whatever the header Host says

	// draining is closed when the server stops: streams end with their last frame.
	draining     chan struct{}
	drainOnce    sync.Once
	handlers     sync.WaitGroup // handlers that run, hijacked ones too
	acknowledged rest.Acknowledged
	streams      *guard.Streams
}

// New returns a server. It starts nothing and needs no Close.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, store: cfg.Store, logger: cfg.Logger,
		tail: logread.NewTail(cfg.Store), draining: make(chan struct{}),
	}
	s.guard = guard.New(guard.Config{
		Identify: cfg.Identify, Actor: cfg.Actor, Audit: cfg.Audit, Logger: cfg.Logger, Limits: cfg.Limits, Budgets: cfg.Budgets,
		Owners: func(who matrix.Identity) []log.UUID { return ownersOf(cfg.Store, who) }, Head: func() log.Seq { return cfg.Store.Head().Seq }, Draining: s.draining,
	})
	s.read = backend.NewReader(cfg.Store, s.guard, &s.acknowledged, cfg.Past, cfg.Age)
	s.streams = s.guard.NewStreams()
	s.feed = feedserver.New(feedserver.Config{
		Store: cfg.Store, Tail: s.tail, Logger: cfg.Logger, Sessions: cfg.Sessions, VMMs: cfg.VMMs,
		Streams: s.streams.Load, Refuse: s.guard.Refuse, Audit: s.guard.Note, Lagging: cfg.Lagging,
	})
	s.logs = logserver.New(logserver.Config{
		Store: cfg.Store, Tail: s.tail, Past: cfg.Past, Logger: cfg.Logger, Guard: s.guard, Streams: s.streams, Draining: s.draining,
		Fresh: s.read.Fresh, ErrorOf: backend.ErrorOf, Lagging: cfg.Lagging,
	})
	about := nodes.Config{
		Store: cfg.Store, Tail: s.tail, Feed: s.feed, VMMs: cfg.VMMs, Fabric: cfg.Fabric, Logger: cfg.Logger, Guard: s.guard, Streams: s.streams,
		ServerID: func() string { return cfg.Store.Status().ID }, Fresh: s.read.Fresh, ViewAt: s.serversAt, Named: s.read.Named,
	}
	s.nodes, s.barrier = nodes.New(about), nodes.NewBarrier(about)
	s.write = backend.NewWriter(cfg.Store, s.guard, &s.acknowledged, cfg.NewID, backend.FabricWait{Wanted: s.barrier.Wanted, Await: s.barrier.Await})
	s.health = &healthRoutes{
		store: cfg.Store, read: s.read, version: cfg.Version, started: time.Now(), warnings: cfg.Warnings, lines: cfg.Lines, feeds: s.feed.SessionCount, draining: s.draining,
		certificateEnd: cfg.CertificateEnd, zone: cfg.Zone,
	}
	s.support = &supportRoutes{cfg.Support, s.guard}
	s.overview = overview.New(overview.Config{
		Store: cfg.Store, Everywhere: s.nodes.Everywhere, Here: s.nodes.Here, NotReady: s.health.notReady, Warnings: cfg.Warnings, Age: cfg.Age,
		Metrics: func() prometheus.Gatherer { return s.metrics.registry },
	})
	s.described = newDescribed(cfg.Version, s.Described)
	if s.metrics, err = newMetrics(s); err != nil {
		return nil, fmt.Errorf("api: metrics: %w", err)
	}
	s.mux = s.routes()
	s.handler = s.checked(nil)
	return s, nil
}

// Handler returns the handler of every path. It does not check the header Host; Run
// does.
func (s *Server) Handler() http.Handler { return s.handler }

// Drain ends the streams in order: each subscriber of the feed is told to connect to
// another server. Run calls it when its context ends. It may be called repeatedly.
func (s *Server) Drain() {
	s.drainOnce.Do(func() { close(s.draining) })
	s.feed.Drain()
}

// Run serves listener until ctx ends, then drains, and returns when every handler has
// returned. It returns nil if ctx ended, else the error of the listener. It always
// closes the listener.
func (s *Server) Run(ctx context.Context, listener net.Listener) error {
	// Requests outlive ctx by drainTime, so that running ones can end.
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server := &http.Server{
		Handler:           s.checked(webcheck.NewHosts(listener.Addr(), s.cfg.Names)),
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    MaxHeader,
		// The library would answer "OPTIONS *" before any limit or check.
		DisableGeneralOptionsHandler: true,
		BaseContext:                  func(net.Listener) context.Context { return requests },
		ConnContext:                  guard.WithIdentity,
		ErrorLog:                     slog.NewLogLogger(ServerLog{s.logger.Handler()}, slog.LevelDebug),
	}
	sampled := make(chan struct{})
	go func() {
		defer close(sampled)
		s.overview.Run(requests)
	}()
	defer func() { <-sampled }()
	served := make(chan error, 1)
	go func() { served <- server.Serve(s.guard.Listener(listener, guard.MaxConnections)) }()
	var err error
	select {
	case <-ctx.Done():
	case err = <-served:
		served <- err
		err = fmt.Errorf("api: serve %s: %w", listener.Addr(), err)
	}
	s.Drain()
	grace, stop := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer stop()
	if shutErr := server.Shutdown(grace); shutErr != nil {
		s.logger.Warn("some requests did not end in time and are cut off", "after", drainTime)
	}
	cancel()
	_ = server.Close()
	<-served
	// Feeds were told to end. Those that do not take their last frame are aborted.
	defer context.AfterFunc(grace, s.feed.Abort)()
	s.handlers.Wait()
	s.feed.Wait()
	return err
}

// serversAt calls fn with the state that a query's at asks for. The state has at least
// the server object of one CN, or of all if cn is zero.
func (s *Server) serversAt(w http.ResponseWriter, r *http.Request, p rest.Parameters, cn log.UUID, fn func(*projections.State)) error {
	part := backend.PastPart{Kinds: []log.Kind{log.KindServer}}
	if !cn.IsZero() {
		part = backend.PastPart{Objects: []backend.PastObject{{Kind: log.KindServer, ID: cn.String()}}}
	}
	return s.read.ViewAt(w, r, p, part, fn)
}
