package vminfo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/agent/vminfo/vmstore"
	"rutter/agent/vmsource"
)

// Bounds of the HTTP service.
const (
	// defaultListeners is how many clients may follow events at once.
	defaultListeners = 256
	// defaultWriteTimeout is how long a listener may leave a write unread.
	defaultWriteTimeout = 30 * time.Second
	// maxLimited is how many of them may be clients that see the public fields only: they
	// must not take the places of those that a node needs.
	maxLimited = 16
	// shutdownGrace is how long the service waits for running answers at its end.
	shutdownGrace = 2 * time.Second
	// headerTimeout bounds the reading of a request.
	headerTimeout = 10 * time.Second
	// idleTimeout bounds the time between two requests of a connection.
	idleTimeout = 2 * time.Minute
)

// Config configures a Service. Zeros mean the defaults.
type Config struct {
	// Sources are where VMs come from; at least one.
	Sources []vmsource.Source
	// Store bounds what is kept for readers.
	Store vmstore.Config
	// Listeners bounds how many clients follow events at once. Default 256.
	Listeners int
	// WriteTimeout is how long a listener may leave a write unread before its
	// stream ends. Default 30 s.
	WriteTimeout time.Duration
	// Protect, if not nil, is called with the HTTP server before it serves.
	Protect func(*http.Server)
	// Allow reports whether the client of a request may see all of the VMs' fields, and
	// request a scan. Other clients get the public fields (vmdoc.Public). The error says
	// why the client is unknown; then it gets no VMs. nil: each client may.
	Allow func(*http.Request) (bool, error)
	// Logger; nil discards.
	Logger *slog.Logger
}

// Service serves the VMs of a compute node. Its methods may be called from any
// goroutine, Run once.
type Service struct {
	cfg     Config
	store   *vmstore.Store
	started time.Time
	ready   chan struct{} // closed when every source is loaded

	mu        sync.Mutex // protects what follows
	state     string     // stopped, booting, running: as vminfod names them
	listeners map[string]*listener
	lost      uint64 // listeners that were too slow
	refused   uint64 // listeners over the bound
	limited   int    // listeners that see the public fields only
	unknown   bool   // it was logged that a client is unknown
}

// New returns a service that has started nothing.
func New(cfg Config) (*Service, error) {
	if len(cfg.Sources) == 0 {
		return nil, errors.New("vminfo: no sources: name a folder of manifests, or a vminfod to follow")
	}
	if cfg.Listeners == 0 {
		cfg.Listeners = defaultListeners
	}
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = defaultWriteTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	store := vmstore.New(cfg.Store)
	return &Service{
		cfg: cfg, store: store, started: store.Cfg.Now(), ready: make(chan struct{}),
		state: "stopped", listeners: make(map[string]*listener),
	}, nil
}

// Store is the set of VMs, for use in the same process.
func (s *Service) Store() *vmstore.Store { return s.store }

// Complete reports whether every source sees all of its VMs now. Only then is a VM that
// no source has known to be gone.
func (s *Service) Complete() bool {
	select {
	case <-s.ready:
	default:
		return false
	}
	for _, source := range s.cfg.Sources {
		if !source.Status().Complete {
			return false
		}
	}
	return true
}

// Ready is closed when every source has been loaded.
func (s *Service) Ready() <-chan struct{} { return s.ready }

// Run runs the sources, and serves on listener once they are loaded; with a nil
// listener it serves nothing. It ends with ctx, and then returns nil. It always closes
// the listener.
func (s *Service) Run(ctx context.Context, listener net.Listener) error {
	if listener != nil {
		defer listener.Close()
	}
	s.become("booting")
	defer s.become("stopped")
	g, running := errgroup.WithContext(ctx)
	var loading sync.WaitGroup
	for _, source := range s.cfg.Sources {
		loading.Add(1)
		sink := s.store.Sink(source.Name(), sync.OnceFunc(loading.Done))
		g.Go(func() error {
			defer sink.Loaded() // do not wait for a source that failed
			if err := source.Run(running, sink); err != nil && running.Err() == nil {
				return fmt.Errorf("vminfo: %s: %w", source.Name(), err)
			}
			return nil
		})
	}
	g.Go(func() error {
		loading.Wait()
		if running.Err() != nil {
			return nil
		}
		s.store.GoLive()
		s.become("running")
		close(s.ready)
		s.cfg.Logger.Info("VMs loaded", "vms", s.store.Count(), "took", s.store.Cfg.Now().Sub(s.started))
		if listener == nil {
			return nil
		}
		return s.serve(running, listener)
	})
	return g.Wait()
}

func (s *Service) become(state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
}

func (s *Service) serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx }, // streams end with the service
	}
	if s.cfg.Protect != nil {
		s.cfg.Protect(server)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("vminfo: HTTP: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		_ = server.Close() // do not wait for clients that read nothing
	}
	<-served
	return nil
}
