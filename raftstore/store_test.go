package raftstore

import (
	"fmt"
	"testing"

	"rutter/log"
)

func TestOneServer(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	for i := range 50 {
		result := must(t, n, tagChange(newID(), fmt.Sprintf("tag%d", i)))
		if result.First != log.Seq(i+1) || result.Last != result.First || result.Events != 1 {
			t.Fatalf("result %+v, want seq %d", result, i+1)
		}
	}
	checkFold(t, n.Store)
	before := n.Head()
	n.halt(t)
	n = n.again(t)
	if got := n.Head(); got != before {
		t.Errorf("head after a restart %s, want %s", got, before)
	}
	must(t, n, tagChange(newID(), "after"))
	checkFold(t, n.Store)
}

func TestThreeServers(t *testing.T) {
	t.Parallel()
	nodes := three(t, nil)
	for i := range 30 {
		must(t, nodes[i%3], tagChange(newID(), fmt.Sprintf("tag%d", i)))
	}
	checkSame(t, nodes)
	for _, n := range nodes {
		for ctx := patience(t); n.Ready() != nil && ctx.Err() == nil; {
			_ = n.pause(ctx, nil)
		}
		if err := n.Ready(); err != nil {
			t.Errorf("%s is not ready: %v", n.cfg.ID, err)
		}
	}
}

func TestLeaderStops(t *testing.T) {
	t.Parallel()
	nodes := three(t, nil)
	leaderOf(t, nodes)
	stop := make(chan struct{})
	acked := writers(t, 8, stop, func(i int) *node { return nodes[i%3] })
	waitFor(t, nodes[0], 200)
	leader := leaderOf(t, nodes)
	leader.halt(t)
	var rest []*node
	for _, n := range nodes {
		if n != leader {
			rest = append(rest, n)
		}
	}
	waitFor(t, rest[0], rest[0].Head().Seq+200)
	close(stop)
	done := acked()
	checkSame(t, rest)
	checkAcked(t, rest[0].Store, done)
	back := leader.again(t)
	checkSame(t, append(rest, back))
}

// waitFor waits until a server stands at seq.
func waitFor(t testing.TB, n *node, seq log.Seq) {
	t.Helper()
	if err := n.WaitSeq(patience(t), seq); err != nil {
		t.Fatal(err)
	}
}
