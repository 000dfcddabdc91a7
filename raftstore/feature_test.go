package raftstore

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rutter/log"
)

// The feature version rises when the last server knows it, not before, and a
// server that does not know it is let in no more.
func TestFeatureVersionRises(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	const next = log.FeatureVersion + 1
	quick := func(c *Config) { c.UpkeepEvery, c.FeatureSettle = 20*time.Millisecond, 2*time.Second }
	nodes := three(t, func(c *Config) {
		quick(c)
		if c.ID != "s3" {
			c.Features = next
		}
	})
	leader := leaderOf(t, nodes)
	must(t, leader, tagChange(newID(), "a"))
	for range 10 { // several rounds of upkeep
		_ = leader.pause(patience(t), nil)
	}
	if got := leader.Status().Feature; got != log.FeatureVersion {
		t.Fatalf("feature version %d although s3 does not know it", got)
	}
	old := nodes[2]
	old.halt(t)
	old.cfg.Features = next // the upgrade
	nodes[2] = old.again(t)
	if got := leader.Status().Feature; got != log.FeatureVersion {
		t.Errorf("feature version %d at once: the upgrade cannot be taken back", got)
	}
	for _, n := range nodes {
		await(t, n, "the feature version to rise", func() bool { return n.Status().Feature == next })
	}
	must(t, nodes[2], tagChange(newID(), "b"))
	cfg := testConfig(t, "s4", filepath.Join(t.TempDir(), "s4"))
	j := launch(t, cfg)
	if err := leaderOf(t, nodes).members.AddNonvoter(patience(t), "s4", j.Address()); err == nil {
		t.Error("a server that does not know the feature version was let in")
	}
}

// With FeatureManual the feature version rises when an operator says so, and not before, however
// long each server knows it: until then an upgrade can be taken back. Finalize names the server
// that stands against it. It may be asked of any server.
func TestFeatureVersionIsFinalized(t *testing.T) {
	t.Parallel()
	const before, next = log.FeatureVersion - 1, log.FeatureVersion
	nodes := three(t, func(c *Config) {
		c.UpkeepEvery, c.FeatureSettle, c.FeatureManual = 20*time.Millisecond, 20*time.Millisecond, true
		c.Features = before
	})
	refused := func(want string) {
		t.Helper()
		err := leaderOf(t, nodes).members.Finalize(patience(t))
		for end := time.Now().Add(10 * time.Second); err != nil && strings.Contains(err.Error(), "does not answer") && time.Now().Before(end); { // it was restarted just now
			err = leaderOf(t, nodes).members.Finalize(patience(t))
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("finalize: got %v, want an error that says %q", err, want)
		}
	}
	stays := func(when string) {
		t.Helper()
		leader := leaderOf(t, nodes)
		must(t, leader, tagChange(newID(), when))
		for range 10 { // several rounds of upkeep
			_ = leader.pause(patience(t), nil)
		}
		for _, n := range nodes {
			if got := n.Status().Feature; got != before {
				t.Fatalf("%s: feature version %d on %s before it was finalized", when, got, n.cfg.ID)
			}
		}
	}
	restart := func(i int, features uint32) {
		nodes[i].halt(t)
		nodes[i].cfg.Features = features
		nodes[i] = nodes[i].again(t)
	}
	leaderOf(t, nodes)
	restart(0, next)
	restart(1, next)
	refused("server s3 knows feature version")
	restart(2, next)
	stays("upgraded")
	restart(0, before)
	stays("taken_back")
	refused("server s1 knows feature version")
	restart(0, next)
	stays("upgraded_again")
	var follower *node
	leader := leaderOf(t, nodes)
	for _, n := range nodes {
		if n != leader {
			follower = n
		}
	}
	if err := follower.members.Finalize(patience(t)); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		await(t, n, "the feature version to rise", func() bool { return n.Status().Feature == next })
	}
	if err := follower.members.Finalize(patience(t)); err != nil {
		t.Errorf("finalize of nothing higher: %v", err)
	}
	must(t, follower, tagChange(newID(), "finalized"))
	// What was agreed to holds for servers that start again.
	for i := range nodes {
		restart(i, next)
		await(t, nodes[i], "the feature version after a restart", func() bool { return nodes[i].Status().Feature == next })
	}
	must(t, nodes[0], tagChange(newID(), "restarted"))
}
