package raftstore

import (
	"fmt"
	"testing"
	"time"

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

// TestAbsentFollower: a server that was away until the log no longer reached
// back to it is brought up by a snapshot while others write.
func TestAbsentFollower(t *testing.T) {
	t.Parallel()
	nodes := three(t, func(c *Config) { c.TrailingLogs = 4 })
	leader := leaderOf(t, nodes)
	must(t, leader, tagChange(newID(), "first"))
	away := nodes[0]
	if away == leader {
		away = nodes[1]
	}
	waitFor(t, away, 1)
	away.halt(t)
	from := away.appliedIndex()
	stop := make(chan struct{})
	acked := writers(t, 4, stop, func(int) *node { return leader })
	for ctx := patience(t); ctx.Err() == nil; _ = leader.pause(ctx, nil) {
		first, err := leader.raftLog.FirstIndex()
		if err != nil {
			t.Fatal(err)
		}
		if first > from+1 {
			break
		}
	}
	away = away.again(t)
	waitFor(t, away, leader.Head().Seq+100)
	close(stop)
	done := acked()
	for i, n := range nodes {
		if n.cfg.ID == away.cfg.ID {
			nodes[i] = away
		}
	}
	checkSame(t, nodes)
	checkAcked(t, away.Store, done)
	if got := away.Status().Restores; got == 0 {
		t.Error("no snapshot was restored, the test wants one")
	}
}

// TestRemove changes the membership from a server that is not the leader.
func TestRemove(t *testing.T) {
	t.Parallel()
	nodes := three(t, func(c *Config) { c.Heartbeat = 2 * time.Second }) // a slow machine is not to elect another one: it is unknown then what became of a removal
	leader := leaderOf(t, nodes)
	var others []*node
	for _, n := range nodes {
		if n != leader {
			others = append(others, n)
		}
	}
	must(t, leader, tagChange(newID(), "a"))
	if _, err := others[0].Consistent(patience(t)); err != nil {
		t.Fatal(err)
	}
	if err := others[0].members.Remove(patience(t), others[1].cfg.ID); err != nil {
		t.Fatal(err)
	}
	// On a busy machine the leadership may have moved: then it follows.
	until(t, leader, "two members", func() bool { return len(leader.Status().Members) == 2 })
	if err := leader.members.Remove(patience(t), "nobody"); err != nil {
		t.Errorf("remove of a stranger: %v", err)
	}
	if err := leader.members.Transfer(patience(t), "nobody"); err == nil {
		t.Error("leadership went to a stranger")
	}
	if err := leader.members.AddVoter(patience(t), "", ""); err == nil {
		t.Error("a member without a name was added")
	}
	if err := others[0].members.AddVoter(patience(t), others[1].cfg.ID, others[1].Address()); err != nil {
		t.Fatal(err)
	}
	must(t, others[1], tagChange(newID(), "b"))
	checkSame(t, nodes)
}
