package changefeed

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/vmobject"
)

// Store is the log, as this package reads it. All methods may be called
// concurrently.
type Store interface {
	Head() log.Cursor
	// Changed returns a channel that is closed when more is applied than at the call.
	Changed() <-chan struct{}
	// Entries returns up to limit entries after a seq, dense; none if there are
	// none. Errors: log.ErrCompacted, log.ErrAhead.
	Entries(after log.Seq, limit int) ([]log.Entry, error)
	// CheckCursor: nil, log.ErrOtherLog, log.ErrAhead or log.ErrCompacted.
	CheckCursor(c log.Cursor) error
	// Consistent returns when this server has applied everything that any server
	// acknowledged before the call.
	Consistent(ctx context.Context) (log.Seq, error)
	// Ready is nil when this server can serve: it has caught up with a leader.
	Ready() error
	// Serving is nil, or why nothing of this server's log may be shown.
	Serving() error
}

// Config configures a Service. Store is required; for other fields zero means the
// default.
type Config struct {
	Store  Store
	Logger *slog.Logger // default: none
	// VM returns VMAPI's object of a VM as it is in an item, without empty fields: vm with
	// the NICs that the log has now. If vm is nil, it is the log's own; nil: the log has
	// none. Default: the VM without its NICs.
	VM func(id log.UUID, vm *log.VM) map[string]any
	// Agents returns the compute nodes whose agents follow this server's feed. The
	// stats list them as listeners, as they listed net-agent's. Default: none.
	Agents func() []log.UUID
	// MaxListeners is how many are served at once; default 4,096, since each
	// has two goroutines and a socket.
	MaxListeners int
	// RegisterTime is how long a listener may take to register; default 30 s.
	RegisterTime time.Duration
	// WriteTime is how long a listener may receive nothing; default 10 s. Before that,
	// thousands of items fill the kernel's buffers.
	WriteTime time.Duration
	// PingEvery is how often a listener must give a sign of life, default 15 s, within
	// PongTime, default 30 s. So a half-open connection is noticed within 45 s.
	// Rutter's listeners send a heartbeat each 27.8 s and rely on that.
	PingEvery, PongTime time.Duration
	// BookmarkEvery is how often a listener without new items gets a cursor, if it
	// wants cursors; default 60 s. It is checked with PingEvery.
	BookmarkEvery time.Duration
}

func (c Config) withDefaults() (Config, error) {
	if c.Store == nil {
		return c, errors.New("changefeed: Config.Store is missing")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.VM == nil {
		c.VM = func(_ log.UUID, vm *log.VM) map[string]any {
			if vm == nil {
				return nil
			}
			return vmobject.Show(vm)
		}
	}
	if c.Agents == nil {
		c.Agents = func() []log.UUID { return nil }
	}
	if c.MaxListeners == 0 {
		c.MaxListeners = 4096
	}
	for _, d := range []struct {
		p *time.Duration
		d time.Duration
	}{
		{&c.RegisterTime, 30 * time.Second},
		{&c.WriteTime, 10 * time.Second},
		{&c.PingEvery, 15 * time.Second},
		{&c.PongTime, 30 * time.Second},
		{&c.BookmarkEvery, time.Minute},
	} {
		if *d.p == 0 {
			*d.p = d.d
		}
	}
	return c, nil
}

// Service serves listeners. See the package comment for its concurrency.
type Service struct {
	cfg     Config // immutable
	hub     *hub
	metrics *metrics
	table   *rest.Table
	ctx     context.Context // ends when Run does
	stop    func()

	mu        sync.Mutex // protects what follows
	phase     phase
	listeners int            // sockets that register or are registered; none of those that are refused
	handling  sync.WaitGroup // goroutines of sockets; added to only while running
}

// phase is the state of a Service.
type phase int

const (
	idle    phase = iota // Run was not called yet
	running              // listeners are served
	ended                // Run returns
)

// New returns a Service that does not serve yet.
func New(cfg Config) (*Service, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, hub: newHub(cfg.Store)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.metrics = newMetrics(s)
	s.table = s.surface()
	return s, nil
}

// Run serves listeners until ctx ends, closes them, and returns when all that it and
// Handler started has ended. It returns nil, and may be called once.
func (s *Service) Run(ctx context.Context) error {
	if !s.become(idle, running) {
		return errors.New("changefeed: Run was called twice")
	}
	s.hub.watch(ctx)
	s.become(running, ended)
	s.stop()
	s.hub.end("this server stops: register with another")
	s.handling.Wait()
	return nil
}

func (s *Service) become(from, to phase) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != from {
		return false
	}
	s.phase = to
	return true
}

var errFull = errors.New("this server has as many listeners as it takes")

// serves returns nil, or why listeners cannot be served.
func (s *Service) serves() error {
	s.mu.Lock()
	phase, listeners := s.phase, s.listeners
	s.mu.Unlock()
	if phase != running {
		return errors.New("this server starts or stops")
	}
	if listeners >= s.cfg.MaxListeners {
		return errFull
	}
	if err := s.cfg.Store.Serving(); err != nil {
		return err
	}
	return s.cfg.Store.Ready()
}

// Collectors are the metrics of the feed.
func (s *Service) Collectors() []prometheus.Collector { return s.metrics.all() }
