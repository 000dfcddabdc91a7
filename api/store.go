package api

import (
	"context"
	"errors"

	"rutter/api/logserver"
	"rutter/log"
	"rutter/projections"
)

// Store is the log and its state, as this package needs them. All methods may
// be called concurrently.
type Store interface {
	// Propose has a change decided and written by the leader, wherever it is.
	// A refusal is no error: it stands in the result. Errors wrap ErrNoLeader,
	// ErrOverloaded, ErrClock, log.ErrNoRoom (all: not written) or anything else (it may have been
	// written: retry with the same id).
	Propose(ctx context.Context, c *log.Change) (log.Result, error)
	// View calls fn with the state and the head that it is at, while nothing
	// is applied. fn must not call the store, keep the state, or be slow; the
	// objects it finds may be kept, since nobody changes them.
	View(fn func(state *projections.State, head log.Cursor))
	Head() log.Cursor
	// Floor is the lowest cursor that can be served: entries from Floor+1 on are kept.
	Floor() log.Seq
	// Changed is closed when more is applied than when it was called.
	Changed() <-chan struct{}
	// Entries returns up to limit entries after a seq, dense, never ending
	// within a change, even if a change alone is more than limit; none if there
	// are none. Errors: log.ErrCompacted, log.ErrAhead.
	Entries(after log.Seq, limit int) ([]log.Entry, error)
	// CheckCursor: nil, log.ErrOtherLog, log.ErrAhead or log.ErrCompacted.
	CheckCursor(c log.Cursor) error
	// WaitSeq returns when this server has applied seq, or ctx ends.
	WaitSeq(ctx context.Context, seq log.Seq) error
	// Consistent returns when this server has applied all that was acknowledged
	// anywhere before the call, and the seq that it is then at.
	Consistent(ctx context.Context) (log.Seq, error)
	Status() Status
	// Ready is nil when this server can serve: it has caught up with a leader.
	Ready() error
	// Serving is nil, or why nothing of this server's state may be shown to
	// anybody: it differs from the other servers'. View does not ask it.
	Serving() error
}

// Errors that a Store wraps in what Propose returns.
var (
	// ErrNoLeader: nobody could take the change now. It was not written.
	ErrNoLeader = errors.New("api: no leader")
	// ErrOverloaded: too much is waiting. The change was not written.
	ErrOverloaded = errors.New("api: overloaded")
	// ErrClock: the servers' clocks do not say what the time is. The change was not
	// written, and the client's clock has no part in that.
	ErrClock = errors.New("api: the servers' clocks are wrong")
	// ErrUnknown: the change may have been written or not, whatever else is wrapped.
	ErrUnknown = errors.New("api: the fate of the change is not known")
)

// Status is what a server says of itself. The JSON form is that of GET /cluster.
type Status struct {
	ID      string   `json:"id"`
	State   string   `json:"state"`     // leader, follower, candidate or what else the store calls it
	Leader  string   `json:"leader_id"` // "" if it is not known
	Term    uint64   `json:"term"`
	Applied uint64   `json:"applied"` // raft index
	Commit  uint64   `json:"commit"`  // raft index
	Members []Member `json:"members"`
	// Alarms say what somebody has to see to, in the cluster or on this server.
	Alarms []string `json:"alarms,omitempty"`
	// Detail is printed as it is, for people.
	Detail any `json:"detail,omitempty"`
}

// Member is a server of the cluster.
type Member struct {
	ID      string `json:"id"`
	Address string `json:"address"` // of its peer port
	Voter   bool   `json:"voter"`
	Leader  bool   `json:"leader"`
}

// WaitTime bounds how long a read waits for a seq or a leader, and a write for its
// decision.
const WaitTime = logserver.WaitTime

// sliceRows are the objects that a list looks at while the state is held still.
const sliceRows = 256
