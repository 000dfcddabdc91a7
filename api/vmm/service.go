package vmm

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// Store is the log and its state, as this package needs them.
type Store interface {
	// Propose has a change decided and written by the leader, wherever it is. A
	// refusal stands in the result. After an error it may have been written.
	Propose(ctx context.Context, c *log.Change) (log.Result, error)
	// View calls fn with the state and the head that it is at, while nothing is applied.
	View(fn func(state *projections.State, head log.Cursor))
	// Consistent returns when this server has applied all that was acknowledged
	// anywhere before the call.
	Consistent(ctx context.Context) (log.Seq, error)
	// WaitSeq returns when this server has applied seq, or ctx ends.
	WaitSeq(ctx context.Context, seq log.Seq) error
}

// Peers are the other servers.
type Peers interface {
	// Self is the id of this server.
	Self() string
	// Address is where AskPeer reaches a server; "" if there is none of that id.
	Address(id string) string
	// Leading reports whether this server leads.
	Leading() bool
	// Where names the server that has the newest session of a CN; "" if nobody has one.
	Where(ctx context.Context, cn log.UUID) (id string, err error)
	// AskPeer has Service.AnswerPeer of the server at an address answer.
	AskPeer(ctx context.Context, address string, request []byte) ([]byte, error)
}

// Config configures a Service. Store and NewID must be given.
type Config struct {
	Store Store
	// NewID draws the id of a change: a UUID of version 7.
	NewID func() (log.UUID, error)
	// Peers are the other servers; nil: this one is alone, and leads.
	Peers Peers
	// HTTP asks CNs at their admin address; nil: they are reached through their
	// connections only.
	HTTP *http.Client
	// AdminPort is the port at that address. Default 5309 (spec/cnapi.md §4.4).
	AdminPort int
	// AdminTLS has CNs asked at https there.
	AdminTLS bool
	// SweepEvery is how often the leader looks at every VMM, and each server at
	// what its CNs said of their VMs. Default 30 s (spec/vmm-doorbell.md §7.3).
	SweepEvery time.Duration
	// ReapAfter is how long the leader keeps VMMs that have ended, and migrations
	// between such, before it deletes them. Default 1 h; those of a VM that is
	// deleted go with the next sweep.
	ReapAfter time.Duration
	// Bound says that CNs are known by their certificates: what one of them says is
	// written as its own, and decided as such in the log's order.
	Bound  bool
	Logger *slog.Logger // nil discards
}

// by is the author of what a CN says.
func (s *Service) by(cn log.UUID) log.Author {
	if !s.cfg.Bound || cn.IsZero() {
		return log.Author{}
	}
	return log.Author{Role: log.RoleCN, CN: cn}
}

// Bounds and times.
const (
	// maxPulls bounds the states that a server asks for at once after rings
	// (issue: 10), maxChecks those of a sweep (spec/vmm-doorbell.md §7.3).
	maxPulls  = 10
	maxChecks = 16
	// maxPullsOfCN bounds those of them that are out at one CN, maxPullsOfSilent
	// those at all CNs together that did not answer the last one: the others have
	// the rest, however many CNs are behind a network that swallows what is sent.
	maxPullsOfCN     = 4
	maxPullsOfSilent = 3
	// maxRecording bounds the states that were pulled and are being written; the
	// store gathers what is written at once.
	maxRecording = 256
	// MaxRings bounds the VMMs that wait for their pull; beyond, who rings is
	// told to ring again. 65,536 are a minute's work.
	MaxRings = 1 << 16
	// maxReporters bounds the CNs whose VMs are compared with the log at once.
	maxReporters = 4
	// maxReports bounds the connections that wait for that: as many as a server takes.
	maxReports = 1 << 14
	// MaxVMs bounds the VMs of one CN; what it says beyond is not taken, whatever
	// an operator has raised the log's limit to.
	MaxVMs = 8 * projections.MaxVMsOfCN
	// maxReap bounds what one sweep deletes of what has ended: two changes' worth.
	maxReap = 2 * maxReportOps
	// maxOpen bounds the requests that one CN has not answered.
	maxOpen = 64

	askTime    = 3 * time.Second        // for a CN's answer
	quickTime  = 500 * time.Millisecond // likewise, until it counts as silent and its pull waits
	changeTime = 30 * time.Second       // likewise, if it is asked to change a state
	recordTime = 10 * time.Second       // for a change to be written
	againAfter = time.Second            // until what was not written is tried again
	soonAfter  = 100 * time.Millisecond // likewise, if the leader has not heard of the connection yet
)

// Service is what this package does on one server. See the package comment for
// its concurrency.
type Service struct {
	cfg     Config
	logger  *slog.Logger
	metrics *metrics
	pulls   pullQueue
	reports chan *Conn

	mu    sync.Mutex // protects lines
	conns map[log.UUID]*Conn
}

// New returns a service. It starts nothing.
func New(cfg Config) (*Service, error) {
	if cfg.Store == nil || cfg.NewID == nil {
		return nil, errors.New("vmm: Config lacks Store or NewID")
	}
	if cfg.AdminPort == 0 {
		cfg.AdminPort = 5309
	}
	if cfg.SweepEvery == 0 {
		cfg.SweepEvery = 30 * time.Second
	}
	if cfg.ReapAfter == 0 {
		cfg.ReapAfter = time.Hour
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{
		cfg: cfg, logger: cfg.Logger, metrics: newMetrics(), pulls: newPullQueue(),
		reports: make(chan *Conn, maxReports), conns: make(map[log.UUID]*Conn),
	}
	s.metrics.waiting(s)
	return s, nil
}

// Run answers rings, records what CNs report, and sweeps while this server
// leads. It returns nil when ctx has ended, and all that it started with it.
func (s *Service) Run(ctx context.Context) error {
	var tasks sync.WaitGroup
	recording := make(chan struct{}, maxRecording)
	for range maxPulls {
		tasks.Go(func() { s.pullRung(ctx, &tasks, recording) })
	}
	for range maxReporters {
		tasks.Go(func() { s.takeReports(ctx) })
	}
	tasks.Go(func() { s.watch(ctx) })
	tasks.Wait()
	return nil
}

// watch sweeps until ctx ends.
func (s *Service) watch(ctx context.Context) {
	tick := time.NewTicker(s.cfg.SweepEvery)
	defer tick.Stop()
	reap := reaper{Service: s}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.recheckReports()
			if !s.leading() {
				reap.ended = nil // another leader keeps this now
				continue
			}
			s.sweep(ctx)
			reap.sweep(ctx)
		}
	}
}

func (s *Service) leading() bool { return s.cfg.Peers == nil || s.cfg.Peers.Leading() }

// vmmOf returns a VMM as this server has it, or nil.
func (s *Service) vmmOf(id log.UUID) (found *log.VMM) {
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
		if rec, ok := state.Get(log.KindVMM, id.String()); ok {
			found = rec.Object.(*log.VMM)
		}
	})
	return found
}

// request is one to a CN's VMM service.
func request(method, path, version string, body []byte) *feed.Request {
	return &feed.Request{Method: method, Path: path, Version: version, Body: body}
}
