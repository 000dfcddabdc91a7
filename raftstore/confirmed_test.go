package raftstore

import (
	"testing"
	"time"
)

// A leader is confirmed by a majority again and again; a leader whose followers are gone
// is not, however long raft still holds it for the leader. A server that follows is not
// confirmed.
func TestLeaderIsConfirmed(t *testing.T) {
	t.Parallel()
	nodes := three(t, nil)
	var leader *node
	for range 3 { // the leader may move on a busy machine
		began, confirmed := time.Now(), false
		for ctx := patience(t); !confirmed; {
			leader = leaderOf(t, nodes)
			c, ok := leader.Confirmed()
			if confirmed = ok && c.At.After(began); confirmed && len(c.Others) != 2 {
				t.Errorf("got %+v", c)
			}
			if ctx.Err() != nil {
				t.Fatalf("a majority confirmed no time after %v", began)
			}
			_ = leader.pause(ctx, nil)
		}
	}
	for _, n := range others(nodes, leader) {
		n.halt(t)
		if _, ok := n.Confirmed(); ok {
			t.Errorf("%s has stopped, and says that it leads", n.cfg.ID)
		}
	}
	gone := time.Now()
	for ctx := patience(t); ctx.Err() == nil; {
		c, ok := leader.Confirmed()
		if c.At.After(gone) {
			t.Fatalf("confirmed %v after every follower had ended", c.At.Sub(gone))
		}
		if !ok {
			return
		}
		_ = leader.pause(ctx, nil)
	}
	t.Error("a server without followers leads on")
}

// A server alone confirms itself.
func TestAloneIsConfirmed(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	leaderOf(t, []*node{n})
	before := time.Now()
	if c, ok := n.Confirmed(); !ok || c.At.Before(before) || len(c.Others) > 0 {
		t.Errorf("got %+v, %v", c, ok)
	}
}

// TestLogNowWithinView: the log's clock is read within a view too, also while an entry waits
// to be applied. A read lock of its own would wait for that entry, and both for good.
func TestLogNowWithinView(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	leaderOf(t, []*node{n})
	ended := make(chan error, 1)
	n.View(func(View) {
		go func() {
			_, err := n.Propose(t.Context(), tagChange(newID(), "waits"))
			ended <- err
		}()
		for n.mu.TryRLock() { // until the entry waits for the lock
			n.mu.RUnlock()
			time.Sleep(time.Millisecond)
		}
		if now := n.LogNow(); now.IsZero() {
			t.Error("no time")
		}
	})
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
