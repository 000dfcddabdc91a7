package clocks

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"rutter/log"
)

const (
	// clockKept is how long a reading with a shorter round trip is preferred to newer
	// ones. In that time two clocks whose rates differ by 100 ppm, more than a quartz
	// without NTP, drift apart by half a millisecond.
	clockKept = 5 * time.Second
	// clockStale is the greatest age of a reading that counts. An older reading of a
	// server that is down says nothing about its clock.
	clockStale = 10 * time.Second
)

// Measured is one reading of another server's clock.
type Measured struct {
	Clock log.Time  // what the clock showed
	At    time.Time // moment of the reading, by the monotonic clock: the middle of the round trip
	Doubt time.Duration
}

// from returns what the clock shows at a moment of the monotonic clock.
func (m *Measured) from(now time.Time) log.Time { return m.Clock + log.Time(now.Sub(m.At)) }

// peerClock is what this server knows about another server's clock.
type peerClock struct {
	voter  bool
	best   Measured // zero at: never read
	answer time.Time
	// silent: the server answers, but not this request, because its program is too old.
	silent bool
	err    string // of the last try
}

// Clocks holds the readings of the other servers' clocks, and the agreement computed from
// them.
type Clocks struct {
	now   func() time.Time // this server's wall clock
	own   string           // its name
	bound time.Duration

	mu    sync.Mutex // protects peers and voter
	peers map[string]*peerClock
	voter bool // this server has a vote

	Agreement atomic.Pointer[Agreement]
}

// New returns Clocks without readings. own is this server's name, and now reads its
// clock. bound is how far a clock may be from the agreed clock.
func New(now func() time.Time, own string, bound time.Duration) *Clocks {
	c := &Clocks{now: now, own: own, bound: bound, voter: true, peers: make(map[string]*peerClock)}
	c.Settle(time.Now())
	return c
}

// take adds a reading. The reading with the shortest round trip is kept for clockKept,
// unless a newer one shows that the clock was set.
func (p *peerClock) take(m Measured) {
	old := &p.best
	p.answer, p.silent, p.err = m.At, false, ""
	apart := time.Duration(m.Clock - old.from(m.At)).Abs()
	if old.At.IsZero() || m.Doubt <= old.Doubt || m.At.Sub(old.At) > clockKept || apart > m.Doubt+old.Doubt {
		p.best = m
	}
}

// Settle computes a new Agreement from the readings known at a moment.
func (c *Clocks) Settle(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var others []reading
	for id, p := range c.peers {
		if !p.best.At.IsZero() && now.Sub(p.answer) <= clockStale {
			others = append(others, reading{id, p.voter, p.best.from(now), p.best.Doubt})
		}
	}
	c.Agreement.Store(agree(reading{id: c.own, voter: c.voter, clock: log.TimeOf(c.now())}, others, c.bound, now))
}

// Answered returns how many of the voters, this server included, have reported their
// clock, or that they do not know the request; and the number of voters.
func (c *Clocks) Answered(now time.Time) (answered, voters int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.voter {
		answered, voters = 1, 1
	}
	for _, p := range c.peers {
		if !p.voter {
			continue
		}
		voters++
		if !p.answer.IsZero() && now.Sub(p.answer) <= clockStale {
			answered++
		}
	}
	return answered, voters
}

// Others returns, for each other server, the error of the last reading of its clock; ""
// is none.
func (c *Clocks) Others() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	troubles := make(map[string]string, len(c.peers))
	for id, p := range c.peers {
		troubles[id] = p.err
	}
	return troubles
}

// MembersAre sets the members, and drops the clocks of servers that are no longer
// members.
func (c *Clocks) MembersAre(members []raft.Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.peers
	c.peers = make(map[string]*peerClock, len(members))
	for _, m := range members {
		id, voter := string(m.ID), m.Suffrage == raft.Voter
		if id == c.own {
			c.voter = voter
			continue
		}
		if c.peers[id] = old[id]; old[id] == nil {
			c.peers[id] = new(peerClock)
		}
		c.peers[id].voter = voter
	}
}

// unknownRequest is a part of the answer of a program that does not know a request.
const unknownRequest = "is not known to this server"

// Note adds a reading of the clock of the server id, or the error of an attempt.
func (c *Clocks) Note(id string, m Measured, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[id]
	switch {
	case p == nil: // the server is no longer a member
	case err == nil:
		p.take(m)
	default:
		p.err = err.Error()
		if strings.Contains(p.err, unknownRequest) {
			*p = peerClock{voter: p.voter, answer: time.Now(), silent: true, err: p.err}
		}
	}
}
