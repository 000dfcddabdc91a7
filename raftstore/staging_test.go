package raftstore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rutter/raftstore/offline"
)

// memberOf returns how n sees a member, and whether it does.
func memberOf(n *node, id string) (MemberStatus, bool) {
	for _, m := range n.Status().Members {
		if m.ID == id {
			return m, true
		}
	}
	return MemberStatus{}, false
}

// await waits until a condition holds.
func await(t *testing.T, n *node, what string, condition func() bool) {
	t.Helper()
	for ctx := patience(t); !condition(); {
		if n.pause(ctx, nil) != nil {
			t.Fatalf("waited in vain: %s; %+v", what, n.Status())
		}
	}
}

// A joiner without a vote follows, is promoted when it has caught up, and then
// counts; one that joins by itself ends with a vote.
func TestNonVoter(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	for i := range 30 {
		must(t, n, tagChange(newID(), fmt.Sprintf("tag%d", i)))
	}
	cfg := testConfig(t, "s2", filepath.Join(t.TempDir(), "s2"))
	cfg.Join, cfg.NonVoter = []string{n.Address()}, true
	j := launch(t, cfg)
	if err := j.WaitSeq(patience(t), 30); err != nil {
		t.Fatal(err)
	}
	if m, ok := memberOf(n, "s2"); !ok || m.Voter {
		t.Errorf("s2 is %+v, %v; want a member without a vote", m, ok)
	}
	if err := n.members.Promote(patience(t), "s9"); err == nil || !strings.Contains(err.Error(), "no member") {
		t.Errorf("promote a stranger: %v", err)
	}
	if err := j.members.Promote(patience(t), "s2"); err != nil {
		t.Fatal(err)
	}
	if m, _ := memberOf(n, "s2"); !m.Voter {
		t.Error("s2 was promoted and has no vote")
	}
	cfg = testConfig(t, "s3", filepath.Join(t.TempDir(), "s3"))
	cfg.Join = []string{j.Address()}
	launch(t, cfg)
	await(t, n, "s3 to be a voter", func() bool { m, _ := memberOf(n, "s3"); return m.Voter })
	must(t, n, tagChange(newID(), "three"))
}

// Changes of membership that would stop the cluster are refused.
func TestMembershipGuards(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	must(t, n, tagChange(newID(), "a"))
	short, cancel := context.WithTimeout(t.Context(), time.Second) // one who is not there is asked until it ends
	defer cancel()
	if err := n.members.AddVoter(short, "s2", freeAddress(t)); err == nil || !strings.Contains(err.Error(), "start it first") {
		t.Errorf("add a server that is not there: %v", err)
	}
	if err := n.members.Remove(patience(t), "s1"); err == nil || !strings.Contains(err.Error(), "last server") {
		t.Errorf("remove the only server: %v", err)
	}
	other := one(t, func(c *Config) { c.ID = "x1" })
	must(t, other, tagChange(newID(), "b"))
	if err := n.members.AddNonvoter(patience(t), "x1", other.Address()); err == nil || !strings.Contains(err.Error(), "belongs to cluster") {
		t.Errorf("add a server of another cluster: %v", err)
	}
	if err := n.members.AddNonvoter(patience(t), "s2", other.Address()); err == nil || !strings.Contains(err.Error(), "is called") {
		t.Errorf("add a server under another name: %v", err)
	}
	cfg := testConfig(t, "s2", filepath.Join(t.TempDir(), "s2"))
	cfg.Join = []string{n.Address()}
	j := launch(t, cfg)
	await(t, n, "s2 to be a voter", func() bool { m, _ := memberOf(n, "s2"); return m.Voter })
	j.halt(t)
	// Two voters, one gone: to remove the one that is left cannot work.
	if err := n.members.checkRemoval(patience(t), n.raft.Load(), "s1"); err == nil {
		t.Error("the removal of the last living voter was let through")
	}
}

// The empty folder of a replaced machine, started with the old list of peers,
// begins no cluster beside the running one.
func TestNoSecondFounding(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	must(t, n, tagChange(newID(), "a"))
	cfg := testConfig(t, "s2", filepath.Join(t.TempDir(), "s2"))
	cfg.Listen = freeAddress(t)
	cfg.InitialMembers = []Member{{ID: "s1", Address: n.Address()}, {ID: "s2", Address: cfg.Listen}, {ID: "s3", Address: freeAddress(t)}}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Run(t.Context())
	if err := errors.Join(s.Close()); err != nil {
		t.Error(err)
	}
	if err == nil || !strings.Contains(err.Error(), "give its address to join") {
		t.Errorf("a second founding: %v", err)
	}
}

// A server of another cluster that takes ours for its member is not listened
// to, though its term may be higher.
func TestOtherClusterIsRefused(t *testing.T) {
	t.Parallel()
	nodes := three(t, nil)
	leader := leaderOf(t, nodes)
	must(t, leader, tagChange(newID(), "a"))
	var left *node
	for _, n := range nodes {
		if n != leader {
			left = n
		}
	}
	if err := left.WaitSeq(patience(t), 1); err != nil {
		t.Fatal(err)
	}
	left.halt(t)
	if _, err := Recover(offline.Rebirth{Dir: left.cfg.Dir, Member: Member{ID: left.cfg.ID}}, left.cfg.Logger); err != nil {
		t.Fatal(err)
	}
	left = left.again(t) // at its old address, which the others still know
	must(t, left, tagChange(newID(), "mine"))
	must(t, leader, tagChange(newID(), "theirs"))
	await(t, left, "a stranger to be refused", func() bool { return left.endpoint.peers.Load() != nil && left.Status().State == "Leader" })
	for range 20 { // the others' leader tries every few milliseconds
		_ = left.pause(patience(t), nil)
	}
	must(t, left, tagChange(newID(), "still_mine"))
	if st := left.Status(); st.Head.Cluster == leader.Head().Cluster || st.State != "Leader" {
		t.Errorf("the recovered server is %s of cluster %s", st.State, st.Head.Cluster)
	}
	checkFold(t, left.Store)
}
