package raftstore

import (
	"testing"
	"time"
)

// replacedHeartbeat is how long followers wait for a leader of which they know
// nothing, and replacedTries how often the test replaces a leader: where the
// processors have more to do, the votes may part, and a heartbeat goes by.
const replacedHeartbeat, replacedTries = 2 * time.Second, 5

// The followers of a leader whose process ends without a word do not wait for
// its heartbeat.
func TestEndedLeaderIsReplacedAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	replacedAtOnce(t, replaceEnded)
}

// replacedAtOnce wants one of some tries to take no heartbeat.
func replacedAtOnce(t *testing.T, try func(t *testing.T) time.Duration) {
	var took []time.Duration
	for range replacedTries {
		ok := t.Run("", func(t *testing.T) { took = append(took, try(t)) })
		if !ok || took[len(took)-1] < replacedHeartbeat/2 {
			return
		}
	}
	t.Errorf("the next leader took writes after %v, of a heartbeat of %v", took, replacedHeartbeat)
}

// replaceEnded ends a leader, and returns how long the others were without one.
func replaceEnded(t *testing.T) time.Duration {
	nodes := three(t, func(c *Config) { c.Heartbeat = replacedHeartbeat })
	leader := leaderOf(t, nodes)
	must(t, leader, tagChange(newID(), "before"))
	begun := time.Now()
	endAbruptly(t, leader)
	for _, n := range others(nodes, leader) {
		must(t, n, tagChange(newID(), "after_"+n.cfg.ID))
	}
	took := time.Since(begun)
	hasEnded(t, leader)
	return took
}

// endAbruptly does to a server what the kernel does to one that is killed: the port
// and all connections go. The store finds that it has no port, and stops.
func endAbruptly(t *testing.T, n *node) {
	t.Helper()
	if err := n.endpoint.listener.Close(); err != nil {
		t.Fatal(err)
	}
	n.tasks.HangUp()
}

func hasEnded(t *testing.T, n *node) {
	t.Helper()
	if err := <-n.ended; err == nil {
		t.Error("the leader without a port ran on")
	}
	n.ended <- nil // halt takes it
}

// The first of the followers to stand for election lacks what the other one has, which
// refuses it: then that one stands, and no server waits for a heartbeat.
func TestFollowerThatLacksEntriesStandsFirst(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	replacedAtOnce(t, replaceByTheSecond)
}

// replaceByTheSecond ends a leader whose first follower missed a change, and returns
// how long the others were without one.
func replaceByTheSecond(t *testing.T) time.Duration {
	wired := make(map[string]*wires)
	nodes := three(t, func(c *Config) {
		w := new(wires)
		c.Heartbeat, c.Network, wired[c.ID] = replacedHeartbeat, w, w
	})
	leader := leaderOf(t, nodes)
	followers := others(nodes, leader) // by id, as they stand
	must(t, leader, tagChange(newID(), "before"))
	wired[followers[0].cfg.ID].powerCut()
	must(t, leader, tagChange(newID(), "missed"))
	begun := time.Now()
	endAbruptly(t, leader)
	wired[followers[0].cfg.ID].powerBack()
	must(t, followers[1], tagChange(newID(), "after"))
	took := time.Since(begun)
	hasEnded(t, leader)
	return took
}

// A leader that is there and refuses nothing keeps its place, whatever breaks.
func TestBrokenConnectionsReplaceNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	nodes := three(t, func(c *Config) { c.Heartbeat = 2 * time.Second })
	leader := leaderOf(t, nodes)
	must(t, leader, tagChange(newID(), "before"))
	term := leader.Status().Term
	for range 5 {
		leader.tasks.HangUp()
		if _, err := leader.Consistent(patience(t)); err != nil {
			t.Fatal(err)
		}
	}
	if now := leader.Status(); now.Term != term || now.State != "Leader" {
		t.Errorf("the leader of term %d is %s in term %d", term, now.State, now.Term)
	}
}
