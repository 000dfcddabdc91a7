package raftstore

import (
	"strings"
	"testing"

	"rutter/log"
)

// TestRevertsBeforeTheirVersion: while a server of the cluster may be of a program that does
// not know what a change reverts, each server refuses such a change, and writes nothing.
func TestRevertsBeforeTheirVersion(t *testing.T) {
	t.Parallel()
	nodes := three(t, func(c *Config) { c.features = log.FeatureDeclared - 1 })
	leaderOf(t, nodes)
	for _, n := range nodes {
		head := n.Status().Head.Seq
		change := tagChange(newID(), "t"+n.cfg.ID)
		change.Reverts = log.Reverts{{First: 1, Last: 1}}
		result, err := n.Propose(patience(t), change)
		if err != nil || result.Refusal == nil || !strings.Contains(result.Refusal.Error(), "from version 7 on") {
			t.Errorf("%s: %v, %v", n.cfg.ID, result.Refusal, err)
		}
		if now := n.Status().Head.Seq; now != head {
			t.Errorf("%s: the log grew from %d to %d", n.cfg.ID, head, now)
		}
		change.Reverts = nil
		must(t, n, change)
	}
}
