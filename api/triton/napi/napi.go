package napi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rutter/api/auth/matrix"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// Store is the log and its state, as this package needs them; package backend's
// Store has them with the same meaning. All methods may be called concurrently.
type Store interface {
	Propose(ctx context.Context, c *log.Change) (log.Result, error)
	View(fn func(state *projections.State, head log.Cursor))
	Head() log.Cursor
	WaitSeq(ctx context.Context, seq log.Seq) error
	Consistent(ctx context.Context) (log.Seq, error)
	Ready() error
	Serving() error
}

// Config configures a Service. Store is required.
type Config struct {
	Store Store
	// NewID makes change ids; default: UUIDs of version 7 by this machine's clock.
	NewID  func() (log.UUID, error)
	Logger *slog.Logger // default: none
	// Actor returns the actor of the events that a request causes; the default is that
	// of the request's context (matrix.From), else "napi".
	Actor func(*http.Request) string
	// Changefeeds are the routes of the change feed; nil: those paths do not exist.
	Changefeeds []rest.Route
	// Admin is the UUID of Triton's admin owner: it may provision on every network, and
	// owns the addresses that a network reserves. Zero: there is none.
	Admin log.UUID
	// OverlayTag is the NIC tag of fabric networks, which their clients do not
	// name; default sdc_overlay, Triton's.
	OverlayTag string
	// OverlayMTU is the MTU of fabric networks made under /fabrics that name none, in
	// bytes; default DefaultOverlayMTU. The tag's must have room for the overlay's headers.
	OverlayMTU uint32
}

// DefaultOverlayMTU is Triton's MTU of fabric networks, in bytes.
const DefaultOverlayMTU = 1400

// MTUs that NAPI takes of a network, in bytes.
const (
	MinNetworkMTU = 576
	MaxNetworkMTU = 9000
)

// Service answers NAPI's requests. See the package comment for its concurrency.
type Service struct {
	cfg          Config
	store        Store
	table        *rest.Table
	requests     *prometheus.CounterVec
	acknowledged rest.Acknowledged
	collected    collector
	long         chan struct{} // held by each list after its first few slices, while it reads one
}

// Limits of the surface.
const (
	MaxBody   = 1 << 20 // bytes of a request's body
	MaxList   = 1000    // objects in one answer (spec/napi.md section 3.2)
	sliceRows = 256     // objects that are read while the state is locked

	shortSlices = 8                      // of a list that is not long
	longLists   = 1                      // lists that read or rest at once: they take processor time from writes
	restTime    = 300 * time.Microsecond // a long list rests after each slice, which takes about a third of that
	printAtOnce = 32                     // objects that are printed before the processor is yielded

	readTime  = 10 * time.Second // to reach the state that a read asks for
	writeTime = 20 * time.Second // to decide a write, elections included
)

// New returns a service. It starts nothing and needs no Close.
func New(cfg Config) (*Service, error) {
	if cfg.Store == nil {
		return nil, errors.New("napi: Config.Store is missing")
	}
	if cfg.NewID == nil {
		cfg.NewID = rest.NewChangeID
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Actor == nil {
		cfg.Actor = actorOf
	}
	if cfg.OverlayTag == "" {
		cfg.OverlayTag = "sdc_overlay"
	}
	if cfg.OverlayMTU == 0 {
		cfg.OverlayMTU = DefaultOverlayMTU
	}
	s := &Service{cfg: cfg, store: cfg.Store, long: make(chan struct{}, longLists), requests: rest.Requests(
		"rutter_napi_requests_total", "Requests to the NAPI surface by route, method and status.", "code")}
	s.table = s.surface()
	return s, nil
}

// Table is everything that the surface serves.
func (s *Service) Table() *rest.Table { return s.table }

// Handler returns the handler of every path, at the root and without a gate.
func (s *Service) Handler() http.Handler { return s.table.Handler() }

// Collectors returns the surface's metrics.
func (s *Service) Collectors() []prometheus.Collector { return []prometheus.Collector{s.requests} }

func actorOf(r *http.Request) string {
	if who, ok := matrix.From(r.Context()); ok {
		return who.Actor()
	}
	return "napi"
}
