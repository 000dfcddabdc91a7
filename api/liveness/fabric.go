package liveness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"rutter/log"
	"rutter/projections"
)

// Store is the log and its state, as this package needs them.
type Store interface {
	// Propose sends a change to the leader, which decides and writes it.
	Propose(ctx context.Context, c *log.Change) (log.Result, error)
	// View calls fn with the state and the head that it is at, while nothing is applied.
	View(fn func(state *projections.State, head log.Cursor))
	Head() log.Cursor
	// Consistent returns when this server has applied all that was acknowledged
	// anywhere before the call.
	Consistent(ctx context.Context) (log.Seq, error)
	// WaitSeq returns when this server has applied seq, or ctx ends.
	WaitSeq(ctx context.Context, seq log.Seq) error
}

// Peers are the servers of the cluster, and how to reach them.
type Peers interface {
	// Self is the id of this server.
	Self() string
	// Members are the servers of the cluster, this one among them.
	Members() []Member
	// Leading reports whether this server leads, and in which term.
	Leading() (term uint64, ok bool)
	// LeaderMoved returns a channel that is closed when the leader may have changed
	// since the call.
	LeaderMoved() <-chan struct{}
	// Ask calls Fabric.Answer of the server at the address of a Member; "" is the
	// leader. Errors: ErrNoLeader, and those of the connection.
	Ask(ctx context.Context, address string, request []byte) ([]byte, error)
}

// Member is a server.
type Member struct{ ID, Address string }

// ErrNoLeader is wrapped if there is no leader, or it changed meanwhile: try again.
var ErrNoLeader = errors.New("liveness: no leader")

// Config configures a Fabric. Store, Peers, Table and NewID must be given.
type Config struct {
	Store Store
	Peers Peers
	Table *Table
	// NewID draws the id of a change: a UUID of version 7.
	NewID  func() (log.UUID, error)
	Logger *slog.Logger // nil discards
	// Now tells the time; default time.Now. It may jump: see steady.
	Now func() time.Time

	// Lease is how long a CN without a sign counts as running. Default 30 s: 15 s until
	// a server notices that a connection is dead, 10 s until the agent has found
	// another server, and 5 s. So the loss of one server makes no CN unknown.
	Lease time.Duration
	// Settle is how long a CN that was unknown must be connected before it counts as
	// running. Default 3 s, three rounds: a CN that connects and fails again makes no
	// events.
	Settle time.Duration
	// Every is how often the leader judges, and how often it asks for sessions
	// while no barrier waits. Default 1 s.
	Every time.Duration
}

func (c Config) withDefaults() Config {
	or := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	or(&c.Lease, 30*time.Second)
	or(&c.Settle, 3*time.Second)
	or(&c.Every, time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Times of asking.
const (
	// askWithin bounds one question to a server.
	askWithin = 3 * time.Second
	// hurryGap is the least time between two answers while a barrier waits. Changes
	// within it are sent together.
	hurryGap = 2 * time.Millisecond
	// hurryHold is how long a server holds an answer back while a barrier waits
	// and nothing has changed.
	hurryHold = 250 * time.Millisecond
	// askAgain is how soon a server that did not answer is asked again.
	askAgain = 200 * time.Millisecond
	// whereGap is how old the answers of a server may be when it is asked where an unknown
	// compute node is; older ones are asked for again at once (Where).
	whereGap = 50 * time.Millisecond
)

// Fabric is the leader's knowledge of all sessions, and access to it from any server.
type Fabric struct {
	cfg   Config
	beats *beats

	mu   sync.Mutex  // protects term
	term *leaderTerm // nil unless this server leads
}

// New returns a Fabric. It starts nothing.
func New(cfg Config) (*Fabric, error) {
	if cfg.Store == nil || cfg.Peers == nil || cfg.Table == nil || cfg.NewID == nil {
		return nil, errors.New("liveness: Config lacks Store, Peers, Table or NewID")
	}
	return &Fabric{cfg: cfg.withDefaults(), beats: newBeats()}, nil
}

// Run gathers and writes transitions while this server leads, and sends heartbeats to
// the leader, until ctx ends; it returns nil.
func (f *Fabric) Run(ctx context.Context) error {
	var carrying sync.WaitGroup
	carrying.Go(func() { f.carry(ctx) })
	defer carrying.Wait()
	for ctx.Err() == nil {
		moved := f.cfg.Peers.LeaderMoved()
		term, leads := f.cfg.Peers.Leading()
		if leads {
			f.lead(ctx, term)
			continue
		}
		select {
		case <-moved:
		case <-ctx.Done():
		}
	}
	return nil
}

// lead does the leader's work during one term.
func (f *Fabric) lead(ctx context.Context, term uint64) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := newLeaderTerm(f.cfg, term)
	f.become(r)
	defer f.become(nil)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()
	tick := time.NewTicker(f.cfg.Every)
	defer tick.Stop()
	for {
		moved := f.cfg.Peers.LeaderMoved()
		if now, leads := f.cfg.Peers.Leading(); !leads || now != term {
			return
		}
		for _, v := range r.members(ctx, f.cfg.Peers.Members()) {
			tasks.Go(func() { r.gather(v) })
		}
		select {
		case <-tick.C:
			r.judge(ctx)
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}

func (f *Fabric) become(r *leaderTerm) {
	f.mu.Lock()
	before := f.term
	f.term = r
	f.mu.Unlock()
	if before != nil {
		before.end()
	}
}

func (f *Fabric) current() *leaderTerm {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.term
}

// Kinds of requests between servers: the first byte.
const (
	askSessions byte = 1 // a poll; answered with an answer
	askWait     byte = 2 // JSON of a Query; answered with JSON of a Verdict
	askWhere    byte = 4 // a CN (16 bytes); answered with the id of the server of its newest session, "" if there is none
	askBeats    byte = 5 // heartbeats that came to a server (see beat.go); answered with nothing
	askList     byte = 3 // the CN after which to begin (16 bytes); answered with JSON of at most listPage Known
)

// Answer answers a request of another server. Errors: ErrNoLeader, log.ErrFormat, ctx's.
func (f *Fabric) Answer(ctx context.Context, request []byte) ([]byte, error) {
	if len(request) == 0 {
		return nil, fmt.Errorf("liveness: empty request: %w", log.ErrFormat)
	}
	switch body := request[1:]; request[0] {
	case askSessions:
		p, err := decodePoll(body)
		if err != nil {
			return nil, err
		}
		return f.cfg.Table.poll(ctx, p).encode(), nil
	case askWait:
		return f.answerWait(ctx, body)
	case askList:
		return f.answerList(body)
	case askWhere:
		return f.answerWhere(body)
	case askBeats:
		return f.answerBeats(body)
	}
	return nil, fmt.Errorf("liveness: request of type %d is not known to this server: upgrade it: %w", request[0], log.ErrFormat)
}
