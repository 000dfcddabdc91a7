package raftstore

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"rutter/log"
	"rutter/raftstore/internal/changesdb"
)

// TestFollowerLag: a follower whose changes.db stands still says that it is not ready, by
// how much, takes no more entries than it may keep in memory, stops no other server, and
// is ready when it has caught up (SAFETY P7).
func TestFollowerLag(t *testing.T) {
	t.Parallel()
	const bound, each = 1000, 200
	nodes := three(t, func(c *Config) {
		c.MaxLagEvents, c.PersistDelay = bound, time.Millisecond
		c.Heartbeat = 2 * time.Second // a slow machine is not to elect another one: that takes no changes while it lags
	})
	lead := leaderOf(t, nodes)
	var f *node
	for _, n := range nodes {
		if n != lead {
			f = n
		}
	}
	stop := make(chan struct{})
	release := sync.OnceFunc(func() { close(stop) })
	t.Cleanup(release)
	f.persister.SetFault(func(string) error { <-stop; return nil })
	for i := range 40 {
		var ops []log.Op
		for j := range each {
			ops = append(ops, tagOp(fmt.Sprintf("t%d_%d", i, j)))
		}
		until(t, lead, "the leader's own file", func() bool { return !lead.persister.Behind() })
		must(t, lead, &log.Change{ID: newID(), Actor: "t", Ops: ops})
		if i*each > bound {
			until(t, f, "not ready", func() bool { return errors.Is(f.Ready(), changesdb.ErrLagging) })
		}
	}
	if st := f.Status(); st.Ready || st.LagEvents <= bound {
		t.Errorf("its status: ready %v, %d events behind", st.Ready, st.LagEvents)
	}
	// What the leader sent at once is taken as a whole.
	if st := f.Status(); st.LagEvents > lagLimit*bound+maxAppendEntries*each {
		t.Errorf("it collected %d events, with a bound of %d", st.LagEvents, lagLimit*bound)
	}
	t.Logf("not ready: %v", f.Ready())
	release()
	if err := f.WaitSeq(patience(t), lead.Head().Seq); err != nil {
		t.Fatal(err)
	}
	until(t, f, "ready again", func() bool { return f.Ready() == nil })
}
