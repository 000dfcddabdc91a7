package raftstore

import (
	"errors"
	"testing"

	"rutter/log"
	"rutter/log/budget"
	"rutter/raftstore/internal/admission"
)

// A change that the leader's queue does not take costs its author nothing: it is sent
// again.
func TestRefusedByTheQueueCostsNothing(t *testing.T) {
	t.Parallel()
	n := one(t, func(c *Config) {
		c.Budgets, _ = budget.Parse([]string{"cn_operations=1:40"})
	})
	leaderOf(t, []*node{n})
	by := log.Author{Role: log.RoleCN, CN: newID()}
	change := &log.Change{ID: newID(), Actor: "cn:x", By: by}
	for range 40 {
		change.Ops = append(change.Ops, log.Op{Action: log.Delete, Kind: log.KindVM, ID: newID().String()})
	}
	closed := errors.New("test: closed")
	setClosed := n.proposer.queue.Answer
	setClosed(closed)
	for range 3 {
		if err := n.proposer.enqueue(change, func(admission.Outcome) {}); !errors.Is(err, closed) {
			t.Fatalf("a queue that takes nothing: %v", err)
		}
	}
	setClosed(nil)
	if _, err := n.Propose(patience(t), change); err != nil {
		t.Errorf("the account is full still: %v", err)
	}
}
