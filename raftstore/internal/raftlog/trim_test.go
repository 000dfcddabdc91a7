package raftlog

import (
	"testing"

	"github.com/hashicorp/raft"

	"rutter/raftstore/internal/raftlog/early"
)

// noting is a log store that notes what is deleted.
type noting struct {
	raft.LogStore
	deleted [][2]uint64
}

func (n *noting) FirstIndex() (uint64, error) { return 10, nil }

func (n *noting) LastIndex() (uint64, error) { return 1000, nil }

func (n *noting) DeleteRange(lo, hi uint64) error {
	n.deleted = append(n.deleted, [2]uint64{lo, hi})
	return nil
}

// TestTrimInSteps: old entries go in steps that follow each other, but for the last of them;
// new ones go at once.
func TestTrimInSteps(t *testing.T) {
	for _, c := range []struct {
		lo, hi uint64
		left   uint64 // the first that stays
		steps  int
	}{
		{10, 10, 10, 0},
		{10, 11, 11, 1},
		{10, 10 + trimAtOnce, 10 + trimAtOnce, 1},
		{10, 11 + trimAtOnce, 11 + trimAtOnce, 2},
		{10, 11 + 5*trimAtOnce, 11 + 5*trimAtOnce, 6},
		{10, 1000, 1001, (1001 - 10 + trimAtOnce - 1) / trimAtOnce}, // all
		{11, 10 + 5*trimAtOnce, 11 + 5*trimAtOnce, 1},               // not from the first: a new leader's are in the place of these
	} {
		store := new(noting)
		l := &Log{Log: early.New(store, early.Options{})}
		if err := l.DeleteRange(c.lo, c.hi); err != nil {
			t.Fatal(err)
		}
		if len(store.deleted) != c.steps {
			t.Errorf("%d to %d went in %d steps, want %d", c.lo, c.hi, len(store.deleted), c.steps)
		}
		next := c.lo
		for _, d := range store.deleted {
			if d[0] != next || d[1] < d[0] || d[1]-d[0] >= trimAtOnce && c.steps > 1 {
				t.Errorf("%d to %d: a step is %v, and %d is next", c.lo, c.hi, d, next)
			}
			next = d[1] + 1
		}
		if next != c.left {
			t.Errorf("%d to %d: %d is next after all steps", c.lo, c.hi, next)
		}
	}
}
