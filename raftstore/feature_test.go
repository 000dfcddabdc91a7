package raftstore

import (
	"path/filepath"
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
