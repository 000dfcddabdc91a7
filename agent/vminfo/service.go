package vminfo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/agent/vminfo/vmstore"
	"rutter/agent/vmsource"
	"rutter/log"
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

// Defaults of the times of sources: Config.
const (
	defaultLoadWithin = 10 * time.Second
	defaultRestartMin = time.Second
	defaultRestartMax = time.Minute
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
	// LoadWithin is how long the service waits at its start for the VMs of each source.
	// Default 10 s.
	LoadWithin time.Duration
	// RestartMin and RestartMax bound the pause before a source that ended is run again.
	// Defaults 1 s and 1 min.
	RestartMin, RestartMax time.Duration
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
	lost      uint64            // listeners that were too slow
	refused   uint64            // listeners over the bound
	limited   int               // listeners that see the public fields only
	unknown   bool              // it was logged that a client is unknown
	loaded    map[string]bool   // sources that have told their VMs once, by name
	failed    map[string]string // sources that do not run, and why
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
	cfg.LoadWithin = cmp.Or(cfg.LoadWithin, defaultLoadWithin)
	cfg.RestartMin, cfg.RestartMax = cmp.Or(cfg.RestartMin, defaultRestartMin), cmp.Or(cfg.RestartMax, defaultRestartMax)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	names := make(map[string]bool)
	for _, source := range cfg.Sources {
		if names[source.Name()] {
			return nil, fmt.Errorf("vminfo: two sources have the name %q", source.Name())
		}
		names[source.Name()] = true
	}
	store := vmstore.New(cfg.Store)
	return &Service{
		cfg: cfg, store: store, started: store.Cfg.Now(), ready: make(chan struct{}),
		state: "stopped", listeners: make(map[string]*listener), loaded: make(map[string]bool), failed: make(map[string]string),
	}, nil
}

// Store is the set of VMs, for use in the same process.
func (s *Service) Store() *vmstore.Store { return s.store }

// Complete reports whether every source lists all of its VMs now (vmsource.Status.Lists).
// Then a VM that no source has, and none has aside, is known to be gone.
func (s *Service) Complete() bool {
	select {
	case <-s.ready:
	default:
		return false
	}
	for _, source := range s.cfg.Sources {
		if st := s.statusOf(source); !st.Lists() {
			return false
		}
	}
	return true
}

// Gone returns what says whether a VM is known to be gone, by the sources as they are now:
// none has it, or something aside that may be it, and the source that had it last lists its
// VMs now. Where no source had it since the service began, all must list theirs.
func (s *Service) Gone() func(vm log.UUID) bool {
	select {
	case <-s.ready:
	default:
		return func(log.UUID) bool { return false }
	}
	all, lists, aside := true, make(map[string]bool), make([]vmsource.Status, 0, len(s.cfg.Sources))
	for _, source := range s.cfg.Sources {
		st := s.statusOf(source)
		lists[source.Name()] = st.Lists()
		all = all && st.Lists()
		aside = append(aside, st)
	}
	return func(vm log.UUID) bool {
		holder, last := s.store.Last(vm)
		if holder || !all && !lists[last] {
			return false
		}
		return !slices.ContainsFunc(aside, func(st vmsource.Status) bool { return st.Has(vm) })
	}
}

// Ready is closed when every source has been loaded.
func (s *Service) Ready() <-chan struct{} { return s.ready }

// Run runs the sources, and serves on listener once they are loaded, or Config.LoadWithin is
// over. A source that ends is run again after a pause that grows. With a nil listener it
// serves nothing. It ends with ctx, and then returns nil, or with an error of the listener,
// which it always closes.
func (s *Service) Run(ctx context.Context, listener net.Listener) error {
	if listener != nil {
		defer listener.Close()
	}
	s.become("booting")
	defer s.become("stopped")
	g, running := errgroup.WithContext(ctx)
	s.store.OnReleased(s.scan)
	var loading sync.WaitGroup
	for _, source := range s.cfg.Sources {
		loading.Add(1)
		loaded := sync.OnceFunc(func() {
			s.loadedFrom(source.Name())
			loading.Done()
		})
		g.Go(func() error {
			s.follow(running, source, loaded)
			return nil
		})
	}
	all := make(chan struct{})
	g.Go(func() error { // it ends with the sources: each of them calls loaded
		loading.Wait()
		close(all)
		return nil
	})
	g.Go(func() error {
		late := time.NewTimer(s.cfg.LoadWithin)
		defer late.Stop()
		select {
		case <-all:
		case <-late.C:
			s.cfg.Logger.Error("not every source of VMs has told its VMs: the others go on, and none of its VMs is taken for gone", "waited", s.cfg.LoadWithin)
		case <-running.Done():
		}
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

// follow runs a source until ctx ends, and again after each end of its own. Its VMs stay as
// they were meanwhile.
func (s *Service) follow(ctx context.Context, source vmsource.Source, loaded func()) {
	sink := s.store.Sink(source.Name(), loaded)
	defer loaded()
	for pause := s.cfg.RestartMin; ; pause = min(2*pause, s.cfg.RestartMax) {
		began := time.Now()
		err := source.Run(ctx, sink)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errEnded
		}
		loaded() // do not wait for a source that failed
		if time.Since(began) > s.cfg.RestartMax {
			pause = s.cfg.RestartMin
		}
		s.cfg.Logger.Error("a source of VMs failed: its VMs stay as they were, and it begins anew", "source", source.Name(), "error", err, "again", pause)
		s.fail(source.Name(), fmt.Sprintf("failed: %v; its VMs stay as they were, and it begins again at %s", err, time.Now().Add(pause).UTC().Format(time.RFC3339)))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		s.fail(source.Name(), "")
	}
}

// errEnded: a source ended although it was not asked to.
var errEnded = errors.New("vminfo: the source ended by itself")

// scan asks each source for a full scan.
func (s *Service) scan() {
	for _, source := range s.cfg.Sources {
		source.Scan()
	}
}

func (s *Service) loadedFrom(source string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded[source] = true
}

// fail records why a source does not run; "": it does.
func (s *Service) fail(source, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.failed, source)
	if why != "" {
		s.failed[source] = why
	}
}

// statusOf is the status of a source. One that failed, or has told nothing yet, is not
// complete, whatever it says.
func (s *Service) statusOf(source vmsource.Source) vmsource.Status {
	st := source.Status()
	s.mu.Lock()
	defer s.mu.Unlock()
	if why := s.failed[source.Name()]; why != "" {
		st.State, st.Complete = why, false
	}
	st.Complete, st.Listed = st.Complete && s.loaded[source.Name()], st.Listed && s.loaded[source.Name()]
	return st
}

// Control returns what starts and stops a VM: the control of its own source. Errors are a
// vmsource.ErrNoControl, which says what to do. A VM that no source has is controlled by the
// first source that has a control, which says that there is none.
func (s *Service) Control(vm log.UUID) (vmsource.Control, error) {
	holder := s.store.Holder(vm)
	for _, source := range s.cfg.Sources {
		controlled, is := source.(vmsource.Controlled)
		switch {
		case holder == "" && is:
			if control, err := controlled.Control(); err == nil {
				return control, nil
			}
		case holder != source.Name():
		case is:
			return controlled.Control()
		default:
			return nil, fmt.Errorf("%w: %s runs it: ask that one", vmsource.ErrNoControl, holder)
		}
	}
	return nil, fmt.Errorf("%w: no source of this node has VM %s, and none starts VMs", vmsource.ErrNoControl, vm)
}

// asideOf returns why a VM that no source shows is put aside; "": it is not.
func (s *Service) asideOf(vm log.UUID) string {
	if s.store.Holder(vm) != "" {
		return ""
	}
	for _, source := range s.cfg.Sources {
		for _, a := range source.Status().Aside {
			if a.UUID == vm {
				return a.Reason
			}
		}
	}
	return ""
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
