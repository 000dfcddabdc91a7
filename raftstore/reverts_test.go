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
	nodes := three(t, func(c *Config) { c.Features = log.FeatureDeclared - 1 })
	leaderOf(t, nodes)
	next := log.Seq(1) // of the log: what is refused has no entry, whichever server is asked
	for _, n := range nodes {
		change := tagChange(newID(), "t"+n.cfg.ID)
		change.Reverts = log.Reverts{{First: 1, Last: 1}}
		result, err := n.Propose(patience(t), change)
		if err != nil || result.Refusal == nil || !strings.Contains(result.Refusal.Error(), "from version 7 on") {
			t.Errorf("%s: %v, %v", n.cfg.ID, result.Refusal, err)
		}
		change.Reverts = nil
		if result = must(t, n, change); result.First != next {
			t.Errorf("%s: the next change is #%d, want #%d: the refused one left an entry", n.cfg.ID, result.First, next)
		}
		next = result.Last + 1
	}
}
