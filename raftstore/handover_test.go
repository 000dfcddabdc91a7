package raftstore

import (
	"context"
	"testing"
	"time"
)

// TestHandOverToTheDead: a server that was asked again and again to hand over to
// one that is down leads and writes as before, then and when it was elected again.
func TestHandOverToTheDead(t *testing.T) {
	t.Parallel()
	nodes := three(t, nil)
	leader := leaderOf(t, nodes)
	var others []*node
	for _, n := range nodes {
		if n != leader {
			others = append(others, n)
		}
	}
	others[0].halt(t)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), leader.cfg.Election+leader.cfg.Election/2)
		if err := leader.members.Transfer(ctx, others[0].cfg.ID); err == nil {
			t.Fatal("the leadership went to a server that is down")
		}
		cancel()
		must(t, leader, tagChange(newID(), "t"+newID().String()[24:]))
	}
	ctx, cancel := context.WithTimeout(t.Context(), leader.cfg.Election+leader.cfg.Election/2)
	go func() { _ = leader.members.Transfer(ctx, others[0].cfg.ID) }()
	others[1].halt(t)
	until(t, leader, "nobody to lead is left", func() bool { return leader.Status().State != "Leader" })
	cancel()
	for i := range others {
		others[i] = others[i].again(t)
	}
	must(t, leader, tagChange(newID(), "after"))
	again := []*node{leader, others[0], others[1]}
	// One attempt lasts a few elections, within which a busy machine may not come round.
	until(t, leader, "the first server leads again", func() bool {
		_ = leaderOf(t, again).members.Transfer(patience(t), leader.cfg.ID)
		return leader.Status().State == "Leader"
	})
	must(t, leader, tagChange(newID(), "back"))
	checkSame(t, again)
}

// TestHandOverUnderLoad: no write fails while the leadership goes round, and the
// one that was named gets it.
func TestHandOverUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	nodes := three(t, func(c *Config) { c.Heartbeat = 2 * time.Second }) // a slow machine is not to elect another one
	leaderOf(t, nodes)
	stop := make(chan struct{})
	acked := writers(t, 8, stop, func(i int) *node { return nodes[i%3] })
	for i := range 9 {
		want := nodes[i%3]
		if err := nodes[(i+1)%3].members.Transfer(patience(t), want.cfg.ID); err != nil {
			t.Errorf("hand over to %s: %v", want.cfg.ID, err)
		} else if l := leaderOf(t, nodes); l != want {
			t.Errorf("%s leads, want %s", l.cfg.ID, want.cfg.ID)
		}
	}
	close(stop)
	written := acked()
	checkSame(t, nodes)
	checkAcked(t, nodes[0].Store, written)
}

// TestRebuildDuringHandOver: a leader that hands over for another reason, as with a full
// disk, and is told to rebuild, rebuilds when the hand-over has ended.
func TestRebuildDuringHandOver(t *testing.T) {
	t.Parallel()
	nodes := three(t, func(c *Config) { c.Heartbeat = 2 * time.Second }) // a slow machine is not to elect another one
	must(t, nodes[0], tagChange(newID(), "before"))
	leader := leaderOf(t, nodes)
	was, ok := leader.lead.becomeLeaving()
	if !ok {
		t.Fatal("it hands over by itself")
	}
	rebuilt := make(chan error, 1)
	go func() { rebuilt <- leader.Rebuild(patience(t)) }()
	select {
	case err := <-rebuilt: // without an error only if the others elected another one
		rebuilt <- err
	case <-time.After(100 * time.Millisecond):
	}
	leader.lead.becomeStaying(was)
	if err := <-rebuilt; err != nil {
		t.Error(err)
	}
	must(t, nodes[0], tagChange(newID(), "after"))
	checkSame(t, nodes)
}
