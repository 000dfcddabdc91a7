package liveness

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rutter/log"
	"rutter/log/feed"
)

// TestBarrierOfAPausedLeader (SAFETY B3): a leader was confirmed, then another was elected, and
// this process does not know of it. Raft does: no verdict is given.
func TestBarrierOfAPausedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Now)
		cn := c.cns(1)[0]
		defer c.run()()
		c.elect(0)
		seq := c.store.Head().Seq
		c.reach(1, connect(cn, 1, 1), 0)
		wait(5 * time.Second)
		var v Verdict
		var err error
		over := make(chan struct{})
		go func() {
			defer close(over)
			v, err = c.nodes[0].fabric.current().wait(t.Context(), Query{Seq: seq, Scopes: []log.Scope{log.CNScope(cn)}, Timeout: 500 * time.Millisecond})
		}()
		time.Sleep(100 * time.Millisecond)
		c.mu.Lock()
		c.leader, c.term = 1, c.term+1 // as raft has it; the process was not told
		c.mu.Unlock()
		c.reach(1, connect(cn, 1, 1), seq)
		<-over
		if v.Done || !errors.Is(err, ErrNoLeader) {
			t.Errorf("%+v, %v; want no verdict of a leader that is none", v, err)
		}
	})
}

// TestBarrierOfANodeThatHolds (SAFETY R2): the kernel of a node that holds a view back has what
// the node continues with, and not what the log says.
func TestBarrierOfANodeThatHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Now)
		cn := c.cns(1)[0]
		defer c.run()()
		c.elect(0)
		seq := c.store.Head().Seq
		holds := connect(cn, 1, 1)
		holds.Held = true
		c.reach(1, holds, seq)
		v := c.wait(0, seq, time.Second, log.CNScope(cn))
		if v.Done || v.Total != 1 || !strings.HasPrefix(v.Missing[0].Reason, "it holds back") {
			t.Errorf("%+v; want the node to be missing, since it holds something back", v)
		}
		holds.Held = false
		c.reach(1, holds, seq)
		if v := c.wait(0, seq, 5*time.Second, log.CNScope(cn)); !v.Done {
			t.Errorf("in the end: %+v", v)
		}
	})
}

// TestListThatIsNotKnown (SAFETY L2): a server names a list by its number only if the leader has
// it. If the leader has not, only what is programmed counts.
func TestListThatIsNotKnown(t *testing.T) {
	r := newLeaderTerm(Config{}.withDefaults(), 1)
	v := &view{member: Member{ID: "s1"}, sessions: map[log.UUID]Reported{}}
	r.views["s1"] = v
	list := []feed.Wait{{Kind: feed.WaitVNet, VNet: 7}}
	row := Reported{Session: connect(testUUID(1), 1, 1)}
	row.Programmed, row.Reached, row.List = 3, 9, 5
	told := func() Reported {
		r.take(v, &pollAnswer{rows: []Reported{row}}, 0)
		return v.sessions[testUUID(1)]
	}
	if got := told(); got.far() != 3 || got.List != 0 {
		t.Errorf("a list that never came: %+v; want only what is programmed", got)
	}
	row.listed, row.Waits = true, list
	told()
	row.listed, row.Waits = false, nil
	if got := told(); got.far() != 9 || len(got.Waits) != 1 {
		t.Errorf("a list that came before: %+v; want it to count", got)
	}
	row.List = 6
	if got := told(); got.far() != 3 || got.List != 0 {
		t.Errorf("a list after the one that came: %+v; want only what is programmed", got)
	}
}

// TestTableKeepsTheNewest (SAFETY B1): what a server hears late of an older session, or of
// one that has ended, changes nothing.
func TestTableKeepsTheNewest(t *testing.T) {
	table := NewTable(1, time.Now)
	cn := testUUID(1)
	held := func() Session {
		return table.since(poll{}).rows[0].Session
	}
	newest := connect(cn, 2, 1)
	isNewest := func() bool { now := held(); return now.Compare(&newest) == 0 && !now.Gone }
	if !table.Put(newest) || table.Put(connect(cn, 1, 9)) || table.Put(gone(connect(cn, 1, 9))) || !isNewest() {
		t.Errorf("an older session was taken: %+v", held())
	}
	if !table.Put(gone(connect(cn, 2, 1))) || table.Put(connect(cn, 2, 1)) || !held().Gone {
		t.Errorf("a session came back after its end: %+v", held())
	}
	if !table.Put(connect(cn, 2, 2)) || held().Gone {
		t.Errorf("the next session was not taken: %+v", held())
	}
}

// TestPausedLeaderWritesNoStatus: the status of nodes is written by the leader, and the log would
// take it from any server. A process that was paused finds out that it leads no more.
func TestPausedLeaderWritesNoStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Now)
		cn := c.cns(1)[0]
		defer c.run()()
		c.elect(0)
		wait(time.Second)
		r, before := c.nodes[0].fabric.current(), c.store.Head().Seq
		c.mu.Lock()
		c.leader, c.term = 1, c.term+1
		c.mu.Unlock()
		lost := []transition{{cn, running, "test"}}
		if r.write(t.Context(), lost); c.store.Head().Seq != before {
			t.Errorf("a leader that is none wrote: %v", c.store.statuses())
		}
		c.mu.Lock()
		c.leader, c.term = 0, c.term-1
		c.mu.Unlock()
		if r.write(t.Context(), lost); c.store.Head().Seq == before {
			t.Error("the leader did not write")
		}
	})
}
