package liveness

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"rutter/log"
)

// A barrier believes no session that it has not asked about since it began: a newer
// one may be with any server, of which the leader has not heard, and may know less
// (SAFETY B1, B2). Here the agent of a CN was started anew, follows another server,
// and has not looked at its kernel yet.
func TestBarrierAsksForNewerSessions(t *testing.T) {
	for name, c := range map[string]struct {
		late   time.Duration // of that server's answers
		before time.Duration // from a round of questions until the newer session comes
	}{
		// The leader's last round of questions is over, the next is held back.
		"nobody was asked since": {0, 200 * time.Millisecond},
		// An answer of before is on its way while the barrier begins.
		"an answer is on its way": {100 * time.Millisecond, 50 * time.Millisecond},
	} {
		for server := range 3 { // that the newer session is with; the leader is 0
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testNewerSession(t, server, c.late, c.before) })
			})
		}
	}
}

func testNewerSession(t *testing.T, server int, late, before time.Duration) {
	c := newCluster(t, time.Now)
	cn := c.cns(1)[0]
	defer c.run()()
	c.elect(0)
	seq := c.store.Head().Seq
	old := (server + 1) % 3
	c.reach(old, connect(cn, 1, 1), seq)
	c.setLate(server, late)
	wait(10*time.Second + late) // the servers are asked each second, and then wait for news for one
	if v := c.wait(0, seq, 5*time.Second, log.CNScope(cn)); !v.Done {
		t.Fatalf("before: %+v", v)
	}
	answered(t, c, server)
	time.Sleep(before)
	if !c.reach(server, connect(cn, 2, 1), 0) {
		t.Fatal("the newer session was not taken")
	}
	if v := c.wait(0, seq, time.Second, log.CNScope(cn)); v.Done || v.Total != 1 || v.Missing[0].Server != c.nodes[server].Self() {
		t.Errorf("%+v; want to wait for the session that the agent began with %s", v, c.nodes[server].Self())
	}
	c.reach(server, connect(cn, 2, 1), seq)
	if v := c.wait(0, seq, 5*time.Second, log.CNScope(cn)); !v.Done {
		t.Errorf("in the end: %+v", v)
	}
}

// answered returns when a server has just answered one of the leader's questions;
// the answer may be on its way still.
func answered(t *testing.T, c *cluster, server int) {
	t.Helper()
	view := func() (begun uint64) {
		r := c.nodes[0].fabric.current()
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.views[c.nodes[server].Self()].begun
	}
	for was := view(); view() == was; {
		time.Sleep(time.Millisecond)
	}
	c.mu.Lock()
	late := c.nodes[server].late
	c.mu.Unlock()
	if late > 0 {
		time.Sleep(time.Second) // a question is answered that long after it was put
	}
}

// A leader that the others do not confirm judges nothing, whatever it has heard.
func TestBarrierOfADeposedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Now)
		cn := c.cns(1)[0]
		defer c.run()()
		c.elect(0)
		seq := c.store.Head().Seq
		c.reach(1, connect(cn, 1, 1), seq)
		wait(5 * time.Second)
		c.store.depose(errors.New("nobody confirms it"))
		for server := range 2 {
			v, err := c.nodes[server].fabric.Wait(t.Context(), Query{Seq: seq, Scopes: []log.Scope{log.CNScope(cn)}, Timeout: time.Second})
			if v.Done || err == nil {
				t.Errorf("asked at s%d: %+v, %v; want no verdict", server, v, err)
			}
		}
	})
}

// A server that was started anew, and to which something of an older session comes
// late, has lost the newest one: what that said before counts no more.
func TestBarrierAfterALostSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Now)
		cn := c.cns(1)[0]
		defer c.run()()
		c.elect(0)
		seq := c.store.Head().Seq
		c.reach(1, connect(cn, 1, 2), seq)
		wait(5 * time.Second)
		table := c.nodes[1].table
		table.mu.Lock()
		table.run++
		clear(table.rows)
		table.order.Init()
		table.mu.Unlock()
		c.reach(1, connect(cn, 1, 1), 0)
		v := c.wait(0, seq, time.Second, log.CNScope(cn))
		if v.Done || len(v.Missing) != 1 || v.Missing[0].Reason != "its server s1 has lost its session" {
			t.Errorf("%+v; want the session to be lost", v)
		}
	})
}

// A CN that the log does not have any more, and that is there all the same, has to
// take away what it had.
func TestBarrierOfAStrangerThatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Now)
		cn := c.cns(1)[0]
		defer c.run()()
		c.elect(0)
		c.reach(1, connect(cn, 1, 1), c.store.Head().Seq)
		wait(5 * time.Second)
		change := &log.Change{ID: testUUID(1 << 41), Actor: "test", Ops: []log.Op{{Action: log.Delete, Kind: log.KindServer, ID: cn.String()}}}
		result, err := c.store.Propose(t.Context(), change)
		if err != nil || result.Refusal != nil {
			t.Fatal(err, result.Refusal)
		}
		if v := c.wait(0, result.Last, time.Second, log.CNScope(cn)); v.Done || v.CNs != 1 {
			t.Errorf("%+v; want to wait for the CN that is there", v)
		}
		c.reach(1, connect(cn, 1, 1), result.Last)
		if v := c.wait(0, result.Last, 5*time.Second, log.CNScope(cn)); !v.Done {
			t.Errorf("in the end: %+v", v)
		}
	})
}
