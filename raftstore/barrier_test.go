package raftstore

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"rutter/log"
	"rutter/raftstore/internal/command"
)

// A reader that comes while a barrier is under way waits for the next one: the barrier
// says nothing about what was acknowledged after it began (SAFETY R1).
func TestBarrierBeginsAfterTheRead(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	must(t, n, tagChange(newID(), "before"))
	if _, err := n.Consistent(patience(t)); err != nil {
		t.Fatal(err)
	}
	r, ctx := n.raft.Load(), patience(t)
	reaches := func(index uint64) {
		t.Helper()
		until(t, n, "raft's log grows", func() bool { return r.LastIndex() >= index })
	}
	until(t, n, "it is ready", func() bool { return n.lead.ready.Load() }) // it asks for a barrier itself before
	base := r.LastIndex()
	n.applier.mu.Lock() // raft's FSM goroutine waits for it, and a barrier for that
	written, read := make(chan error, 1), make(chan error, 2)
	go func() {
		_, err := n.Propose(ctx, tagChange(newID(), "holds"))
		written <- err
	}()
	reaches(base + 1)
	barrier := func() {
		_, err := n.barriers.barrierLocal(ctx)
		read <- err
	}
	go barrier()
	reaches(base + 2)
	go barrier()
	until(t, n, "the second reader waits", func() bool {
		n.barriers.mu.Lock()
		defer n.barriers.mu.Unlock()
		return len(n.barriers.waiting) == 1
	})
	n.applier.mu.Unlock()
	for _, answer := range []chan error{written, read, read} {
		if err := <-answer; err != nil {
			t.Error(err)
		}
	}
	if last := r.LastIndex(); last < base+3 {
		t.Errorf("raft's log grew by %d entries: the second reader was answered by a barrier that began before it", last-base)
	}
}

// A leader that hands over makes no barrier for readers: it would be an entry that the next
// leader lacks. They ask the next leader.
func TestNoBarrierWhileLeaving(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	must(t, n, tagChange(newID(), "before"))
	was, ok := n.lead.becomeLeaving()
	if !ok {
		t.Fatal("it hands over by itself")
	}
	if _, err := n.barriers.barrierLocal(patience(t)); !errors.Is(err, errNotLeader) || !errors.Is(err, errTransferring) {
		t.Errorf("a barrier while the leadership is handed over: %v, want %v", err, errTransferring)
	}
	n.lead.becomeStaying(was)
	if seq, err := n.barriers.barrierLocal(patience(t)); err != nil || seq != 1 {
		t.Errorf("afterwards: %d, %v", seq, err)
	}
}

// A server gets no vote before it has applied the log: it would count for the quorum, and
// could acknowledge nothing.
func TestNoVoteBeforeCaughtUp(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	must(t, n, tagChange(newID(), "before"))
	j := launch(t, testConfig(t, "s2", t.TempDir()))
	j.applier.mu.Lock() // it gets entries, and applies none
	if err := n.members.AddNonvoter(patience(t), "s2", j.Address()); err != nil {
		t.Fatal(err)
	}
	if err := n.members.promoteLocal(patience(t), n.raft.Load(), "s2"); !errors.Is(err, ErrNotCaughtUp) {
		t.Errorf("a vote for a server that applied nothing: %v, want %v", err, ErrNotCaughtUp)
	}
	j.applier.mu.Unlock()
	until(t, j, "it has the log", func() bool { return j.Head() == n.Head() })
	if err := n.members.promoteLocal(patience(t), n.raft.Load(), "s2"); err != nil {
		t.Error(err)
	}
	must(t, n, tagChange(newID(), "by_two"))
}

// The log's time does not go back with the stamp of a leader whose clock is behind that of
// the one before (SAFETY D2).
func TestTimeNeverGoesBackInTheLog(t *testing.T) {
	t.Parallel()
	s := bareStore(t, t.TempDir())
	defer s.close()
	s.found(log.FeatureVersion)
	id := newID()
	ms, _ := id.UnixMilli()
	now := log.Time(ms) * 1_000_000
	for i, stamp := range []log.Time{now, now - 5_000_000_000, now - 1, now + 1} {
		c := tagChange(newID(), string(rune('a'+i)))
		c.Time = stamp
		if r := s.batch(encodedChange(t, c))[0]; r.Refusal != nil {
			t.Fatal(r.Refusal)
		}
		if want := max(now, stamp); s.applier.head.Time != want {
			t.Errorf("after a stamp of %v the log's time is %v, want %v", stamp, s.applier.head.Time, want)
		}
	}
	last := log.Time(0)
	for _, e := range all(t, s.Store) {
		event, err := e.Event()
		if err != nil {
			t.Fatal(err)
		}
		if event.Time < last {
			t.Errorf("entry %d is of %v, the one before of %v", e.Seq, event.Time, last)
		}
		last = event.Time
	}
}

// The feature version never falls, whatever an entry says: what was written by a higher one
// could not be read (SAFETY D1).
func TestFeatureVersionNeverFalls(t *testing.T) {
	t.Parallel()
	s := bareStore(t, t.TempDir())
	defer s.close()
	s.found(log.FeatureContained)
	for _, step := range []struct{ say, want uint32 }{
		{log.FeatureVersion, log.FeatureVersion},
		{log.FeatureContained, log.FeatureVersion},
		{0, log.FeatureVersion},
	} {
		if err, ok := s.entry(s.applier.head.Applied+1, binary.BigEndian.AppendUint32([]byte{command.Feature}, step.say)).(error); ok {
			t.Fatal(err)
		}
		if got := s.applier.head.Feature; got != step.want || s.state.Feature() != step.want {
			t.Errorf("after an entry of version %d the cluster is at %d, its state at %d; want %d", step.say, got, s.state.Feature(), step.want)
		}
	}
}

// A server that was started knows no commit before a leader speaks, and may lack what was
// acknowledged: it is not ready alone, whatever it has itself (SAFETY P4).
func TestNotReadyAlone(t *testing.T) {
	t.Parallel()
	nodes := three(t, func(c *Config) { c.CompareEvery = 20 * time.Millisecond })
	must(t, leaderOf(t, nodes), tagChange(newID(), "before"))
	for _, n := range nodes {
		n.halt(t)
	}
	n := nodes[0].again(t)
	until(t, n, "it compares itself", func() bool { return n.counters.comparisons.Load() >= 5 })
	if n.lead.ready.Load() {
		t.Error("a server that heard of no commit says that it has caught up")
	}
	second := nodes[1].again(t)
	for _, n := range []*node{n, second} {
		until(t, n, "it is ready", func() bool { return n.Ready() == nil })
	}
}
