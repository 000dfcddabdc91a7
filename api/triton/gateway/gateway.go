package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// Limits. An answer of the old service is passed on without a limit of its size.
const (
	// MaxBody bounds the body of a request, in bytes.
	MaxBody = 1 << 20
	// MaxInventory bounds the body of PUT /vms, which has every VM of a compute node.
	MaxInventory = 16 << 20
	// MaxUnderWay bounds the requests that one identity has with the old service at once.
	MaxUnderWay = 64
	// MaxTotal bounds the requests of all that are with the old service at once.
	MaxTotal = 512
	// MaxRead bounds an answer that the gateway itself reads, in bytes.
	MaxRead = 64 << 20
	// MaxSwept bounds the VMs that one sweep reads from the old VMAPI.
	MaxSwept = 200_000
	// MaxPut bounds the VMs of one PUT /vms.
	MaxPut = 4096
)

// Times.
const (
	dialTime = 3 * time.Second
	// HeaderTime is how long the old service may take until its answer begins.
	HeaderTime = 60 * time.Second
	// WaitTime is HeaderTime of calls that wait for something: /wait, /watch, sync=true.
	WaitTime = time.Hour + 30*time.Second
	// StallTime is how long an answer may pause once it has begun; of /watch: WaitTime.
	StallTime = 60 * time.Second
	askTime   = 10 * time.Second // of a request of the gateway's own
	// readTime bounds what a caller waits for while the gateway reads a VM behind.
	readTime    = 5 * time.Second
	pingEvery   = 5 * time.Second
	sweepEvery  = 5 * time.Minute
	proposeTime = 10 * time.Second
	firstPause  = 50 * time.Millisecond
	mostPause   = 5 * time.Second
)

// Surfaces of a gateway.
const (
	VMAPI = "vmapi"
	CNAPI = "cnapi"
)

// Store is the log and its state, as this package needs them; see backend.Store.
type Store interface {
	Propose(ctx context.Context, c *log.Change) (log.Result, error)
	View(fn func(state *projections.State, head log.Cursor))
	Changed() <-chan struct{}
	Entries(after log.Seq, limit int) ([]log.Entry, error)
	CheckCursor(c log.Cursor) error
	WaitSeq(ctx context.Context, seq log.Seq) error
	Ready() error
	Serving() error
}

// Config configures a Gateway. Surface, Table, Behind, Store and NewID are required.
type Config struct {
	Surface string
	Table   *rest.Table
	// Behind is the base URL of the old service.
	Behind string
	Store  Store
	NewID  func() (log.UUID, error)
	// PlacementBehind leaves tickets, /allocate and /capacity to the old CNAPI, all of
	// them: they share one store.
	PlacementBehind bool
	// Programs reports whether a client may choose what runs on compute nodes, Operator
	// whether it is an operator. nil: each client may.
	Programs, Operator func(*http.Request) bool
	// Leading reports whether this server leads; nil: it does.
	Leading func() bool
	// Self is the name of this server.
	Self    string
	Metrics *Metrics
	Logger  *slog.Logger // nil discards
	// Sweep is how often the old service's objects are compared with the log; default 5
	// minutes.
	Sweep time.Duration
	// HeaderTime and StallTime replace the constants, for tests; 0: the constant.
	HeaderTime, StallTime time.Duration
}

// Gateway wraps one table. See the package comment for its concurrency.
type Gateway struct {
	cfg     Config
	store   Store
	logger  *slog.Logger
	behind  *behind
	calls   *http.ServeMux // of *call
	inner   http.Handler   // the wrapped table, for requests of the gateway's own
	owns    map[string]bool
	reports reports
	// looked is the last VM that lookFor asked for. Only the sweep uses it.
	looked log.UUID

	mu sync.Mutex // protects what follows
	// downSince is when the old service began not to answer; zero: it answers.
	downSince time.Time
	downWhy   string
}

// ParseBehind reads the base URL of an old service.
func ParseBehind(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
		return nil, fmt.Errorf("%q: want http://HOST or http://HOST:PORT, as in http://10.99.99.28", text)
	}
	u.Path = ""
	return u, nil
}

// New returns a gateway, or says what cfg lacks.
func New(cfg Config) (*Gateway, error) {
	if cfg.Surface != VMAPI && cfg.Surface != CNAPI || cfg.Table == nil || cfg.Store == nil || cfg.NewID == nil {
		return nil, errors.New("gateway: Config lacks Surface, Table, Store or NewID")
	}
	base, err := ParseBehind(cfg.Behind)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics()
	}
	if cfg.Sweep == 0 {
		cfg.Sweep = sweepEvery
	}
	if cfg.HeaderTime == 0 {
		cfg.HeaderTime = HeaderTime
	}
	if cfg.StallTime == 0 {
		cfg.StallTime = StallTime
	}
	g := &Gateway{cfg: cfg, store: cfg.Store, logger: cfg.Logger.With("surface", cfg.Surface, "behind", base.String()), inner: cfg.Table.Handler(), owns: make(map[string]bool)}
	g.behind = newBehind(g, base)
	g.reports = reports{g: g, busy: make(map[string]bool), late: make(map[string]report)}
	for _, name := range cfg.Table.Endpoints() {
		g.owns[name] = true
	}
	if cfg.Surface == VMAPI {
		g.calls = muxOf(g.vmCalls())
	} else {
		g.calls = muxOf(g.serverCalls())
	}
	cfg.Metrics.add(g)
	return g, nil
}

// Name is the old service in messages.
func (g *Gateway) name() string {
	if g.cfg.Surface == VMAPI {
		return "the old VMAPI"
	}
	return "the old CNAPI"
}

// setting is the flag that names the old service.
func (g *Gateway) setting() string { return "--" + g.cfg.Surface + "-behind" }

func (g *Gateway) leading() bool { return g.cfg.Leading == nil || g.cfg.Leading() }

// Run probes the old service and, while this server leads, keeps the inventories alike,
// until ctx ends; it returns nil when all of it has ended.
func (g *Gateway) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	parts.Go(func() { g.probe(ctx) })
	if g.cfg.Surface == VMAPI {
		parts.Go(func() { g.follow(ctx) })
		out := newOutflow(g)
		parts.Go(func() { out.watch(ctx) })
		parts.Go(func() { out.run(ctx) })
	} else {
		parts.Go(func() { g.followServers(ctx) })
		parts.Go(func() { g.reports.run(ctx) })
	}
	parts.Wait()
	g.behind.transport.CloseIdleConnections()
	return nil
}

// probe asks the old service for /ping, so that its state is known without requests.
func (g *Gateway) probe(ctx context.Context) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		within, cancel := context.WithTimeout(ctx, pingEvery)
		_, _, err := g.behind.ask(within, http.MethodGet, "/ping", nil, nil)
		cancel()
		if ctx.Err() != nil {
			return
		}
		g.noteAnswer(err)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// noteAnswer records whether the old service answered; err is why not.
func (g *Gateway) noteAnswer(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil && !g.downSince.IsZero():
		g.logger.Info(g.name()+" answers again", "after", time.Since(g.downSince).Round(time.Millisecond))
		g.downSince, g.downWhy = time.Time{}, ""
	case err != nil && g.downSince.IsZero():
		g.downSince, g.downWhy = time.Now(), err.Error()
		g.logger.Warn(g.name()+" does not answer: what the log has is answered, the rest is not", "error", err)
	}
}

// up reports whether the old service answered last.
func (g *Gateway) up() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.downSince.IsZero()
}

// Warnings are for /readyz?verbose: that the old service does not answer.
func (g *Gateway) Warnings() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.downSince.IsZero() {
		return nil
	}
	return []string{fmt.Sprintf("%s at %s (%s) has not answered for %s: %s", g.name(), g.behind.base, g.setting(), time.Since(g.downSince).Round(time.Second), g.downWhy)}
}

// String says what is where, for the log.
func (g *Gateway) String() string {
	text := g.cfg.Surface + "=" + g.behind.base.String()
	if g.cfg.Surface == CNAPI {
		text += " placement=" + map[bool]string{true: "behind", false: "ours"}[g.placementBehind()]
	}
	return text
}
