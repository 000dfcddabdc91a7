package clocks

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"rutter/log"
)

// A peer of before knows no such question: it counts as one whose clock is not known.
func TestClockOfOldPeer(t *testing.T) {
	t.Parallel()
	c := New(time.Now, "s1", 3*time.Second)
	c.peers["s2"] = &peerClock{voter: true}
	if answered, voters := c.Answered(time.Now()); answered != 1 || voters != 2 {
		t.Errorf("%d of %d answered", answered, voters)
	}
	c.Note("s2", Measured{}, errors.New("peer request of type 20 is not known to this server: upgrade it"))
	c.Settle(time.Now())
	if answered, _ := c.Answered(time.Now()); answered != 2 {
		t.Error("a server of before is waited for")
	}
	if a := c.Agreement.Load(); !a.Alone() || !a.Judged || a.Wrong("s1") || a.Wrong("s2") {
		t.Errorf("agreed with a server that says nothing: %+v", a)
	}
}

// A reading with a short round trip is kept, until it is old, or the clock was set.
func TestClockReadings(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	at := func(after, off, doubt time.Duration) Measured {
		return Measured{Clock: log.TimeOf(begun.Add(after + off)), At: begun.Add(after), Doubt: doubt}
	}
	var p peerClock
	for i, step := range []struct {
		m    Measured
		kept bool
	}{
		{at(0, 0, 10*time.Millisecond), true},
		{at(time.Second, 50*time.Millisecond, 100*time.Millisecond), false}, // says less
		{at(2*time.Second, time.Millisecond, 5*time.Millisecond), true},
		{at(3*time.Second, time.Minute, 100*time.Millisecond), true}, // it was set
		{at(3500*time.Millisecond, time.Minute, 200*time.Millisecond), false},
		{at(9*time.Second, time.Minute, 200*time.Millisecond), true}, // the other is old
	} {
		if p.take(step.m); (p.best == step.m) != step.kept {
			t.Errorf("reading %d: kept %+v", i, p.best)
		}
	}
}

// Property: of three clocks at most one lies, by any amount and moving as it likes:
// stamps stay within the bound of true time, with any leader, and never stand still for
// longer than the bound.
func TestStampsWithOneLiar(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 15))
		const bound = 3 * time.Second
		begun := time.Now()
		passed := time.Duration(0)
		liar, lie := r.IntN(3), time.Duration(0)
		good := [3]time.Duration{}
		for i := range good { // clocks that are right are so within 100 ms
			good[i] = time.Duration(r.Int64N(int64(200*time.Millisecond))) - 100*time.Millisecond
		}
		var logTime time.Duration // since begun
		for range 50 {
			if r.IntN(4) == 0 {
				lie = time.Duration(r.Int64N(int64(2*year))) - year
				if r.IntN(2) == 0 {
					lie = time.Duration(r.Int64N(int64(20*time.Second))) - 10*time.Second
				}
			}
			passed += time.Duration(r.Int64N(int64(5 * time.Second)))
			clocks := good
			clocks[liar] += lie
			leader := r.IntN(3)
			var others []reading
			for i := range clocks {
				if i != leader { // measured with a doubt, which shows half of it at most
					others = append(others, reading{fmt.Sprint(i), true, log.TimeOf(begun.Add(passed + clocks[i] + 20*time.Millisecond)), 50 * time.Millisecond})
				}
			}
			own := reading{fmt.Sprint(leader), true, log.TimeOf(begun.Add(passed + clocks[leader])), 0}
			a := agree(own, others, bound, time.Now())
			c := NewStamper(func() time.Time { return begun.Add(passed + clocks[leader]) }, time.Minute, bound, func() *Agreement { return a })
			c.Reset(log.TimeOf(begun.Add(logTime)))
			at := stampOf(t, c)
			logTime = max(logTime, time.Duration(at-log.TimeOf(begun)))
			if off := logTime - passed; off.Abs() > bound+200*time.Millisecond {
				t.Fatalf("seed %d: clocks off by %v, led by %d: the log's time is %v off", seed, clocks, leader, off)
			}
		}
	}
}

// A reading counts for clockStale: of a server that answers no more it is not known what
// its clock shows.
func TestOldReadingsDoNotCount(t *testing.T) {
	t.Parallel()
	c := New(time.Now, "s1", time.Second)
	var members []raft.Server
	for _, id := range []raft.ServerID{"s1", "s2", "s3"} {
		members = append(members, raft.Server{ID: id, Suffrage: raft.Voter})
	}
	c.MembersAre(members)
	at := time.Now()
	c.Note("s2", Measured{Clock: log.TimeOf(at), At: at, Doubt: time.Millisecond}, nil)
	for _, step := range []struct {
		after time.Duration
		alone bool
	}{{0, false}, {clockStale, false}, {clockStale + 1, true}} {
		c.Settle(at.Add(step.after))
		if got := c.Agreement.Load().Alone(); got != step.alone {
			t.Errorf("%v after the only reading: alone is %v, want %v", step.after, got, step.alone)
		}
		if answered, voters := c.Answered(at.Add(step.after)); answered == 1 != step.alone || voters != 3 {
			t.Errorf("%v after the only reading: %d of %d voters answered", step.after, answered, voters)
		}
	}
}
