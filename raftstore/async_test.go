package raftstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"rutter/log"
)

func TestEnqueue(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	nodes := three(t, func(c *Config) { c.Heartbeat = time.Second }) // one that is busy leads on
	leader := leaderOf(t, nodes)
	type outcome struct {
		result log.Result
		err    error
	}
	const n = 500
	answers := make(chan outcome, 2*n)
	done := func(r log.Result, err error) { answers <- outcome{r, err} }
	for i := range n {
		c := tagChange(newID(), fmt.Sprintf("tag%d", i))
		for range 2 { // the second is a retry
			if err := leader.Enqueue(c, done); err != nil {
				t.Fatal(err)
			}
		}
		clear(c.Ops) // is ours again
	}
	seqs := make(map[log.UUID]log.Seq)
	for range 2 * n {
		a := <-answers
		if a.err != nil || a.result.Refusal != nil {
			t.Fatalf("got %+v, %v", a.result, a.err)
		}
		if first, seen := seqs[a.result.ChangeID]; seen && first != a.result.First {
			t.Errorf("change %s at seq %d and %d", a.result.ChangeID, first, a.result.First)
		}
		seqs[a.result.ChangeID] = a.result.First
	}
	if head := leader.Head().Seq; head != n || len(seqs) != n {
		t.Errorf("head %d with %d changes answered, want %d of both", head, len(seqs), n)
	}
	checkSame(t, nodes)
	leader.View(func(v View) { // a retry moves the time without an event
		if v.State.Time() != v.Time {
			t.Errorf("the state is of %v, the head of %v", v.State.Time(), v.Time)
		}
	})
	for _, other := range nodes {
		if other == leader {
			continue
		}
		err := other.Enqueue(tagChange(newID(), "never"), func(log.Result, error) { t.Error("told of a change that was not taken") })
		if !errors.Is(err, ErrNoLeader) {
			t.Errorf("on a follower: got %v, want ErrNoLeader", err)
		}
	}
}
