package backend

import (
	"context"
	"errors"
	"time"

	"rutter/log"
	"rutter/projections"
)

// Store is the log and its state, as this package needs them. All methods may
// be called concurrently.
type Store interface {
	// Propose sends a change to the leader, which decides and writes it. A refusal is
	// not an error: it is in the result. Errors wrap ErrNoLeader, ErrOverloaded,
	// ErrClock, log.ErrNoRoom (all: not written) or another error (it may have been
	// written: retry with the same id).
	Propose(ctx context.Context, c *log.Change) (log.Result, error)
	// View calls fn with the state and its head, while nothing is applied. fn must not
	// call the store, keep the state, or be slow. It may keep objects of the state,
	// because they are immutable.
	View(fn func(state *projections.State, head log.Cursor))
	Head() log.Cursor
	// Floor is the lowest cursor that can be served: entries from Floor+1 on are kept.
	Floor() log.Seq
	// Changed returns a channel that is closed when more is applied than at the call.
	Changed() <-chan struct{}
	// Entries returns up to limit entries after a seq, dense, never ending within a
	// change, even if a change alone has more than limit; none if there are none.
	// Errors: log.ErrCompacted, log.ErrAhead.
	Entries(after log.Seq, limit int) ([]log.Entry, error)
	// CheckCursor returns nil, log.ErrOtherLog, log.ErrAhead or log.ErrCompacted.
	CheckCursor(c log.Cursor) error
	// WaitSeq returns when this server has applied seq, or ctx ends.
	WaitSeq(ctx context.Context, seq log.Seq) error
	// Consistent returns when this server has applied everything that any server
	// acknowledged before the call, with the seq that it has then.
	Consistent(ctx context.Context) (log.Seq, error)
	Status() Status
	// Ready is nil when this server can serve: it has caught up with a leader.
	Ready() error
	// Serving returns nil, or why this server's state may not be shown to any client:
	// it differs from the other servers' state. View does not check it.
	Serving() error
}

// Errors that a Store wraps in what Propose returns.
var (
	// ErrNoLeader: no server could accept the change now. It was not written.
	ErrNoLeader = errors.New("api: no leader")
	// ErrOverloaded: too many changes wait. The change was not written.
	ErrOverloaded = errors.New("api: overloaded")
	// ErrClock: the servers' clocks disagree. The change was not written. The client's
	// clock is not the cause.
	ErrClock = errors.New("api: the servers' clocks are wrong")
	// ErrUnknown: the change may have been written or not. This holds for every error
	// that wraps it.
	ErrUnknown = errors.New("api: the fate of the change is not known")
)

// Status is a server's description of itself. The JSON form is that of GET /cluster.
type Status struct {
	ID      string   `json:"id"`
	State   string   `json:"state"`     // leader, follower, candidate or another word of the store
	Leader  string   `json:"leader_id"` // "" if it is not known
	Term    uint64   `json:"term"`
	Applied uint64   `json:"applied"` // raft index
	Commit  uint64   `json:"commit"`  // raft index
	Members []Member `json:"members"`
	// Zone is that of this server; "": it has none.
	Zone string `json:"zone,omitempty"`
	// Alarms say what an operator must act on, in the cluster or on this server.
	Alarms []string `json:"alarms,omitempty"`
	// Detail is printed as it is.
	Detail any `json:"detail,omitempty"`
}

// Member is a server of the cluster.
type Member struct {
	ID      string `json:"id"`
	Address string `json:"address"` // of its peer port
	Voter   bool   `json:"voter"`   // false: a replica, which follows without a vote
	Leader  bool   `json:"leader"`
}

// WaitTime bounds how long a read waits for a seq or a leader, and a write for its
// decision.
const WaitTime = 10 * time.Second

// SliceRows is the number of objects that a list reads while the state is locked.
const SliceRows = 256
