package liveness

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rutter/log"
)

func expect(t *testing.T, c *cluster, want ...string) {
	t.Helper()
	if got := c.store.statuses(); !slices.Equal(got, want) {
		t.Fatalf("status events\n got %q\nwant %q", got, want)
	}
}

// connect is a CN's session with a server.
func connect(cn log.UUID, incarnation, number uint64) Session {
	return Session{CN: cn, Incarnation: incarnation, Number: number}
}

func gone(s Session) Session { s.Gone = true; return s }

func TestRunningAndUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Now)
		cns := c.cns(3)
		defer c.run()()
		c.elect(0)
		first := connect(cns[0], 1, 1)
		c.nodes[1].table.Put(first)
		c.nodes[2].table.Put(connect(cns[1], 1, 1))
		wait(10 * time.Second)
		expect(t, c, "cn0 running", "cn1 running")
		// Its end is no transition until the lease is over.
		c.nodes[1].table.Put(gone(first))
		wait(25 * time.Second)
		expect(t, c, "cn0 running", "cn1 running")
		wait(10 * time.Second)
		expect(t, c, "cn0 running", "cn1 running", "cn0 unknown")
		// One that comes back for a moment makes no events: hysteresis.
		second := connect(cns[0], 1, 2)
		c.nodes[0].table.Put(second)
		wait(time.Second)
		c.nodes[0].table.Put(gone(second))
		wait(time.Minute)
		expect(t, c, "cn0 running", "cn1 running", "cn0 unknown")
		c.nodes[0].table.Put(connect(cns[0], 1, 3))
		wait(10 * time.Second)
		expect(t, c, "cn0 running", "cn1 running", "cn0 unknown", "cn0 running")
	})
}

// The fault of spec/cnapi.md §4.2: a CN beats to A, then fails over to B. A's
// stale copy must never overrule B's, and what B says must always count.
func TestFailOverOfCNAPI(t *testing.T) {
	for name, stale := range map[string]func(c *cluster, s Session){
		"A keeps its copy for ever":    func(*cluster, Session) {},
		"A's copy ends late":           func(c *cluster, s Session) { c.nodes[0].table.Put(gone(s)) },
		"A's copy says something late": func(c *cluster, s Session) { s.Applied = 7; c.nodes[0].table.Put(s) },
		"A dies with its copy":         func(c *cluster, _ Session) { c.setDown(0, true) },
		"A is started anew": func(c *cluster, _ Session) {
			c.nodes[0].table.mu.Lock()
			c.nodes[0].table.run++
			c.nodes[0].table.mu.Unlock()
		},
		"A is cut off and comes back": func(c *cluster, _ Session) { c.setDown(0, true); wait(45 * time.Second); c.setDown(0, false) },
		"the leader changes, to B":    func(c *cluster, _ Session) { c.elect(1) },
		"the leader changes, to A":    func(c *cluster, _ Session) { c.elect(0) },
		"the leader changes repeatedly": func(c *cluster, _ Session) {
			for i := range 12 {
				c.elect(i % 3)
				wait(7 * time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, time.Now)
				cn := c.cns(1)[0]
				defer c.run()()
				c.elect(2)
				a := connect(cn, 5, 1)
				c.nodes[0].table.Put(a)
				wait(10 * time.Second)
				expect(t, c, "cn0 running")
				c.nodes[1].table.Put(connect(cn, 5, 2))
				wait(11 * time.Second)
				stale(c, a)
				wait(3 * time.Minute)
				expect(t, c, "cn0 running") // never unknown
			})
		})
	}
}

// What B hears repairs a CN that was judged unknown.
func TestLaterSessionRepairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Now)
		cn := c.cns(1)[0]
		defer c.run()()
		c.elect(0)
		a := connect(cn, 5, 1)
		c.nodes[0].table.Put(a)
		wait(5 * time.Second)
		c.nodes[0].table.Put(gone(a))
		wait(time.Minute)
		expect(t, c, "cn0 running", "cn0 unknown")
		c.nodes[1].table.Put(connect(cn, 6, 1))
		c.nodes[0].table.Put(a) // refused: it has ended
		wait(time.Minute)
		expect(t, c, "cn0 running", "cn0 unknown", "cn0 running")
	})
}

// A session of an old incarnation, alive as it may be, does not stand for a
// newer one that died.
func TestOldIncarnationNeverOverrides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Now)
		cn := c.cns(1)[0]
		defer c.run()()
		c.elect(0)
		c.nodes[0].table.Put(connect(cn, 5, 9))
		wait(5 * time.Second)
		younger := connect(cn, 6, 1)
		c.nodes[1].table.Put(younger)
		wait(time.Second)
		c.nodes[1].table.Put(gone(younger))
		wait(time.Minute)
		expect(t, c, "cn0 running", "cn0 unknown")
		c.elect(2) // who leads next is told of both
		late := connect(cn, 5, 9)
		late.Applied = 9
		c.nodes[0].table.Put(late)
		wait(time.Minute)
		expect(t, c, "cn0 running", "cn0 unknown")
	})
}

// A new leader waits for one lease before it declares a CN lost.
func TestNewLeaderWaitsOneLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Now)
		cn := c.cns(1)[0]
		defer c.run()()
		c.elect(0)
		s := connect(cn, 1, 1)
		c.nodes[1].table.Put(s)
		wait(5 * time.Second)
		c.nodes[1].table.Put(gone(s))
		for i := range 10 { // no leader stays for a lease
			wait(20 * time.Second)
			c.elect(i % 3)
		}
		expect(t, c, "cn0 running")
		wait(40 * time.Second)
		expect(t, c, "cn0 running", "cn0 unknown")
	})
}

// Without a leader no status changes.
func TestNobodyJudgesWithoutLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Now)
		cn := c.cns(1)[0]
		defer c.run()()
		c.nodes[0].table.Put(connect(cn, 1, 1))
		wait(5 * time.Minute)
		expect(t, c)
	})
}

// jumping is a clock that is set.
type jumping struct {
	mu  sync.Mutex
	off time.Duration
}

func (j *jumping) now() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return time.Unix(0, time.Now().UnixNano()).Add(j.off) // no monotonic reading
}

func (j *jumping) jump(d time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.off += d
}

func TestClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := new(jumping)
		c := newCluster(t, clock.now)
		cns := c.cns(2)
		defer c.run()()
		c.elect(0)
		moving := connect(cns[0], 1, 1)
		c.nodes[1].table.Put(moving)
		c.nodes[2].table.Put(connect(cns[1], 1, 1))
		wait(5 * time.Second)
		expect(t, c, "cn0 running", "cn1 running")
		for i, d := range []time.Duration{time.Hour, -2 * time.Hour, 24 * time.Hour, -time.Minute, 31 * time.Second} {
			c.nodes[1].table.Put(gone(moving))
			clock.jump(d)
			wait(2 * time.Second)
			moving.Number = uint64(i + 2)
			c.nodes[1].table.Put(moving)
			wait(3 * time.Second)
		}
		expect(t, c, "cn0 running", "cn1 running")
		// And a clock that goes back does not keep dead CNs alive without end.
		c.nodes[1].table.Put(gone(moving))
		clock.jump(-10 * time.Hour)
		wait(time.Minute)
		expect(t, c, "cn0 running", "cn1 running", "cn0 unknown")
	})
}

// An agent that was stopped wakes up: its old session has ended, its next counts.
func TestPausedAgentWakesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Now)
		cn := c.cns(1)[0]
		defer c.run()()
		c.elect(0)
		s := connect(cn, 1, 1)
		c.nodes[1].table.Put(s)
		wait(5 * time.Second)
		c.nodes[1].table.Put(gone(s)) // after 15 s of silence
		wait(2 * time.Minute)
		expect(t, c, "cn0 running", "cn0 unknown")
		s.Applied = 3
		if c.nodes[1].table.Put(s) {
			t.Error("the session that had ended took a watermark")
		}
		wait(time.Minute)
		expect(t, c, "cn0 running", "cn0 unknown")
		c.nodes[2].table.Put(connect(cn, 1, 2))
		wait(10 * time.Second)
		expect(t, c, "cn0 running", "cn0 unknown", "cn0 running")
	})
}

// Ten thousand CNs are judged in a few changes, and told in chunks.
func TestManyCNs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Now)
		const n = 10_000
		cns := c.cns(n)
		defer c.run()()
		for i, cn := range cns {
			c.nodes[i%3].table.Put(connect(cn, 1, 1))
		}
		c.elect(0)
		wait(5 * time.Second)
		if got := len(c.store.statuses()); got != n {
			t.Errorf("%d CNs are running, want %d", got, n)
		}
	})
}
