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
	// clockKept is how long a reading with a shorter round trip is preferred to
	// newer ones. Two clocks that differ by 100 ppm, more than a quartz without NTP
	// does, part by half a millisecond meanwhile.
	clockKept = 5 * time.Second
	// clockStale is how old a reading may be that counts: those of a server that is
	// down for longer say nothing of its clock any more.
	clockStale = 10 * time.Second
)

// Measured is one reading of another server's clock.
type Measured struct {
	Clock log.Time  // what it showed
	At    time.Time // when, by the monotonic clock: the middle of the round trip
	Doubt time.Duration
}

// from returns what the clock shows at a moment of the monotonic clock.
func (m *Measured) from(now time.Time) log.Time { return m.Clock + log.Time(now.Sub(m.At)) }

// peerClock is what is known of another server's clock.
type peerClock struct {
	voter  bool
	best   Measured // zero at: never read
	answer time.Time
	// silent: it answers, but not this; its program is of before clocks were read.
	silent bool
	err    string // of the last try
}

// Clocks are those of the other servers, as this one reads them, and what follows
// from them.
type Clocks struct {
	now   func() time.Time // this server's wall clock
	own   string           // its name
	bound time.Duration

	mu    sync.Mutex // protects peers and voter
	peers map[string]*peerClock
	voter bool // this server has a vote

	Agreement atomic.Pointer[Agreement]
}

// New knows no server's clock yet but that of this one, own, which now reads.
// bound is how far a clock may be from the agreed one.
func New(now func() time.Time, own string, bound time.Duration) *Clocks {
	c := &Clocks{now: now, own: own, bound: bound, voter: true, peers: make(map[string]*peerClock)}
	c.Settle(time.Now())
	return c
}

// take notes a reading. The one with the shortest round trip is kept for a while,
// unless a newer one shows that the clock was set since.
func (p *peerClock) take(m Measured) {
	old := &p.best
	p.answer, p.silent, p.err = m.At, false, ""
	apart := time.Duration(m.Clock - old.from(m.At)).Abs()
	if old.At.IsZero() || m.Doubt <= old.Doubt || m.At.Sub(old.At) > clockKept || apart > m.Doubt+old.Doubt {
		p.best = m
	}
}

// Settle agrees anew from what is known at a moment.
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

// Answered returns how many of the voters, this server included, have said what
// their clock shows, or that they do not know the question, and how many there are.
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

// Others returns, of each other server, what went wrong with the last reading of its
// clock; "" is nothing.
func (c *Clocks) Others() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	troubles := make(map[string]string, len(c.peers))
	for id, p := range c.peers {
		troubles[id] = p.err
	}
	return troubles
}

// MembersAre forgets the clocks of those who are no members any more.
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

// unknownRequest is in the answer of a program that does not know a request.
const unknownRequest = "is not known to this server"

// Note takes a reading of the clock of the server id, or why there is none.
func (c *Clocks) Note(id string, m Measured, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[id]
	switch {
	case p == nil: // it has gone meanwhile
	case err == nil:
		p.take(m)
	default:
		p.err = err.Error()
		if strings.Contains(p.err, unknownRequest) {
			*p = peerClock{voter: p.voter, answer: time.Now(), silent: true, err: p.err}
		}
	}
}
