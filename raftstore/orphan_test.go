package raftstore

import (
	"context"
	"testing"
	"time"
)

// The followers of a leader whose process ends without a word do not wait for
// its heartbeat: here that would take longer than the test has.
func TestEndedLeaderIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	nodes := three(t, func(c *Config) { c.Heartbeat = 2 * time.Second })
	leader := leaderOf(t, nodes)
	must(t, leader, tagChange(newID(), "before"))
	// As the kernel does for a process that is killed: the port and all
	// connections go. The store finds that it has no port, and stops.
	begun := time.Now()
	if err := leader.listener.Close(); err != nil {
		t.Fatal(err)
	}
	leader.tasks.hangUp()
	for _, n := range nodes {
		if n == leader {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if _, err := n.Propose(ctx, tagChange(newID(), "after_"+n.cfg.ID)); err != nil {
			t.Errorf("%s: %v", n.cfg.ID, err)
		}
		cancel()
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("the next leader took writes after %v, of a heartbeat of 2 s", took)
	}
	if err := <-leader.ended; err == nil {
		t.Error("the leader without a port ran on")
	}
	leader.ended <- nil // halt takes it
}

// A leader that is there and refuses nothing keeps its place, whatever breaks.
func TestBrokenConnectionsReplaceNobody(t *testing.T) {
	t.Parallel()
	nodes := three(t, func(c *Config) { c.Heartbeat = time.Second })
	leader := leaderOf(t, nodes)
	must(t, leader, tagChange(newID(), "before"))
	term := leader.Status().Term
	for range 5 {
		leader.tasks.hangUp()
		if _, err := leader.Consistent(patience(t)); err != nil {
			t.Fatal(err)
		}
	}
	if now := leader.Status(); now.Term != term || now.State != "Leader" {
		t.Errorf("the leader of term %d is %s in term %d", term, now.State, now.Term)
	}
}
