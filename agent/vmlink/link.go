package vmlink

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/agent/vminfo"
	"rutter/agent/vminfo/vmmstate"
	"rutter/log"
	"rutter/log/feed"
)

// Bounds of a Link.
const (
	// maxRequests bounds the requests that wait for an answer. More are dropped, and
	// the server, which has fewer open, asks again.
	maxRequests = 256
	// answerers is how many requests are answered at once.
	answerers = 8
	// maxCalls bounds the concurrent HTTP requests to servers.
	maxCalls = 8
)

// Servers sends HTTP requests to servers; *client.Client of package api/client does.
type Servers interface {
	Raw(ctx context.Context, method, path string, body []byte) (json.RawMessage, error)
}

// State is this node's part of the log; *agent.Agent has it.
type State interface {
	Object(kind log.Kind, id string) (log.Object, bool)
	// VMsHere are the VMs that the log has on this node; complete: none of them is missing.
	VMsHere() (vms []log.UUID, complete bool)
}

// Config configures a Link. All fields except Logger and the times must be given.
type Config struct {
	// CN is the compute node.
	CN log.UUID
	// Service has the node's VMs, VMMs the incarnations of these VMs.
	Service *vminfo.Service
	VMMs    *vmmstate.Table
	// Servers are those of the cluster.
	Servers Servers
	// PartAfter is how long a source that is not complete holds up the VMs of the others on a
	// new connection. Default 2 s.
	PartAfter time.Duration
	// Metadata: customer_metadata and internal_metadata are reported too. They may have
	// passwords and keys, which every reader of the log would see.
	Metadata bool
	// RingMin and RingMax bound the pause between two rings for one state. Defaults 1 s
	// and 30 s; servers check every 30 s by themselves.
	RingMin, RingMax time.Duration
	// Logger; nil discards.
	Logger *slog.Logger
}

// Link reports VM states to servers. It is an agent.Local.
type Link struct {
	cfg      Config
	handler  http.Handler
	requests chan request
	due      chan struct{}   // holds a token when VMMs must be checked
	linked   chan connection // holds the newest connection

	mu     sync.Mutex // protects what follows
	conn   connection // the last one
	status Status
}

// connection is a connection to a server; ctx ends with it.
type connection struct {
	ctx  context.Context
	conn *feed.Conn
}

type request struct {
	connection
	m *feed.Request
}

// Status is a Link's status.
type Status struct {
	Unrecorded  int       `json:"unrecorded"` // VMMs whose state the log may not have
	Rings       uint64    `json:"rings"`      // of VMMs, through the agent's connection
	Calls       uint64    `json:"calls"`      // over HTTP
	Failure     string    `json:"error,omitempty"`
	Answered    uint64    `json:"answered"` // requests of servers
	Dropped     uint64    `json:"dropped"`  // requests over the bound
	Inventories uint64    `json:"inventories"`
	Reported    uint64    `json:"reported"` // VMs, in inventories and later
	Inventory   string    `json:"inventory"`
	Since       time.Time `json:"inventory_since,omitzero"`
	// Refused are VMs that the log cannot have, at most maxRefused of them.
	Refused []string `json:"refused,omitempty"`
	// LeftOut are the parts of VMs that are too large for the log, at most maxRefused lines.
	LeftOut []string `json:"left_out,omitempty"`
}

// New returns a Link that has started nothing.
func New(cfg Config) (*Link, error) {
	if cfg.CN.IsZero() || cfg.Service == nil || cfg.VMMs == nil || cfg.Servers == nil {
		return nil, errors.New("vmlink: a link needs its compute node, VMs, VMMs and servers")
	}
	if cfg.RingMin == 0 {
		cfg.RingMin = time.Second
	}
	if cfg.RingMax == 0 {
		cfg.RingMax = 30 * time.Second
	}
	if cfg.PartAfter == 0 {
		cfg.PartAfter = 2 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Link{
		cfg: cfg, handler: cfg.VMMs.Handler(), requests: make(chan request, maxRequests),
		due: make(chan struct{}, 1), linked: make(chan connection, 1),
		status: Status{Inventory: "no server yet"},
	}, nil
}

// Run works until ctx ends. state is that of the agent whose Local this is.
func (l *Link) Run(ctx context.Context, state State) error {
	g, running := errgroup.WithContext(ctx)
	r := &ringer{Link: l, state: state, attempts: make(map[log.UUID]*attempt)}
	g.Go(func() error { return r.run(running) })
	g.Go(func() error {
		l.reportAll(running, state)
		return nil
	})
	for range answerers {
		g.Go(func() error {
			l.answerAll(running)
			return nil
		})
	}
	return g.Wait()
}

// Status returns the status.
func (l *Link) Status() Status {
	waiting := len(l.cfg.VMMs.Unrecorded())
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.status
	s.Unrecorded = waiting
	return s
}

func (l *Link) update(change func(*Status)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.status)
}

// Ring schedules a ring for a VMM.
func (l *Link) Ring(log.UUID) { wake(l.due) }

// Connected implements agent.Local.
func (l *Link) Connected(ctx context.Context, conn *feed.Conn) {
	c := connection{ctx, conn}
	l.mu.Lock()
	l.conn = c
	l.mu.Unlock()
	select {
	case <-l.linked: // an older one that was not taken
	default:
	}
	l.linked <- c // only the follower sends
	wake(l.due)
}

// Advanced implements agent.Local.
func (l *Link) Advanced() { wake(l.due) }

// Request implements agent.Local.
func (l *Link) Request(ctx context.Context, conn *feed.Conn, m *feed.Request) {
	select {
	case l.requests <- request{connection{ctx, conn}, m}:
	default:
		l.update(func(s *Status) { s.Dropped++ })
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
