package vmm

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"rutter/api/reach"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// Store is the log and its state, as this package needs them.
type Store interface {
	// Propose sends a change to the leader, which decides and writes it. A refusal is
	// in the result. After an error it may have been written.
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
	// Where returns the server with the newest session of a CN; "" if there is none.
	Where(ctx context.Context, cn log.UUID) (id string, err error)
	// AskPeer calls Service.AnswerPeer of the server at an address.
	AskPeer(ctx context.Context, address string, request []byte) ([]byte, error)
}

// Config configures a Service. Store and NewID must be given.
type Config struct {
	Store Store
	// NewID draws the id of a change: a UUID of version 7.
	NewID func() (log.UUID, error)
	// Peers are the other servers; nil: this server is the only one, and leads.
	Peers Peers
	// HTTP sends requests to CNs at their admin address; nil: only their connections
	// are used.
	HTTP *reach.Client
	// AdminPort is the port at that address. Default 5309 (spec/cnapi.md §4.4).
	AdminPort int
	// AdminTLS makes those requests use https.
	AdminTLS bool
	// SweepEvery is how often the leader checks every VMM, and each server the reports
	// of its CNs. Default 30 s (spec/vmm-doorbell.md §7.3).
	SweepEvery time.Duration
	// ReapAfter is how long the leader keeps VMMs that have ended, and migrations
	// between such. Default 1 h; those of a deleted VM go with the next sweep.
	ReapAfter time.Duration
	// Bound says that CNs are authenticated by certificates: a CN's report is written
	// with the CN as author, and decided as such.
	Bound  bool
	Logger *slog.Logger // nil discards
}

// by returns the author of a CN's report.
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
	// maxPullsOfCN bounds the pending pulls of one CN, maxPullsOfSilent those of all
	// CNs together that did not answer the last one. The other CNs share the rest,
	// however many CNs are behind a network that drops packets.
	maxPullsOfCN     = 4
	maxPullsOfSilent = 3
	// maxRecording bounds the pulled states that are being written; the store groups
	// concurrent writes.
	maxRecording = 256
	// MaxRings bounds the VMMs that wait for their pull; beyond, the caller must ring
	// again later. 65,536 are a minute's work.
	MaxRings = 1 << 16
	// maxUnplaced bounds the VMMs of one CN that wait for the inventory to bring their
	// VM: as many as one frame of rings has. Beyond, the CN rings again after a second.
	maxUnplaced = feed.MaxRings
	// maxReporters bounds the CNs whose VMs are compared with the log at once.
	maxReporters = 4
	// maxReports bounds the connections that wait for that: as many as a server
	// accepts.
	maxReports = 1 << 14
	// MaxVMs bounds the reported VMs of one CN; more are ignored, even if an operator
	// has raised the log's limit.
	MaxVMs = 8 * projections.MaxVMsOfCN
	// maxReap bounds what one sweep deletes of what has ended: two changes' worth.
	maxReap = 2 * maxReportOps
	// maxOpen bounds the pending requests to one CN.
	maxOpen = 64

	askTime    = 3 * time.Second        // for a CN's answer
	quickTime  = 500 * time.Millisecond // likewise, until it counts as silent and its pull waits
	changeTime = 30 * time.Second       // likewise, if it is asked to change a state
	recordTime = 10 * time.Second       // for a change to be written
	againAfter = time.Second            // until what was not written is tried again
	soonAfter  = 100 * time.Millisecond // likewise, if the leader does not know the connection yet
)

// Service is this package's part of one server. See the package comment for its
// concurrency.
type Service struct {
	cfg     Config
	logger  *slog.Logger
	metrics *metrics
	pulls   pullQueue
	reports chan *Conn

	mu    sync.Mutex // protects conns
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
				reap.ended = nil // the next leader has its own
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
