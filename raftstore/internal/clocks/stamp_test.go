package clocks

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"rutter/log"
)

// testClock is a clock whose wall clock is off by *off from the test's.
func testClock(off *time.Duration, agreed *Agreement) *Stamper {
	const bound = 3 * time.Second
	now := func() time.Time { return time.Now().Add(*off) }
	if agreed == nil {
		return NewStamper(now, time.Minute, bound, func() *Agreement {
			return agree(reading{id: "s1", voter: true, clock: log.TimeOf(now())}, nil, bound, time.Now())
		})
	}
	return NewStamper(now, time.Minute, bound, func() *Agreement { return agreed })
}

// stamped stamps, which must work.
func stampOf(t *testing.T, c *Stamper) log.Time {
	t.Helper()
	at, err := c.Stamp()
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestClockJump: with no other server to ask, the wall clock may run ahead of the
// monotonic one by the bound and no more.
func TestClockJump(t *testing.T) {
	t.Parallel()
	const jump = time.Minute
	tests := []struct {
		elapsed, wall time.Duration
		want          error
	}{
		{time.Hour, time.Hour, nil},
		{time.Hour, time.Hour + jump, nil},
		{time.Hour, time.Hour + jump + 1, Err},
		{time.Hour, 0, nil},
	}
	for _, test := range tests {
		if err := checkJump(test.wall, test.elapsed, jump); !errors.Is(err, test.want) {
			t.Errorf("wall %v, elapsed %v: %v, want %v", test.wall, test.elapsed, err, test.want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var off time.Duration
		c := testClock(&off, nil)
		c.Reset(0)
		time.Sleep(24 * time.Hour)
		if at := stampOf(t, c); at != log.TimeOf(time.Now()) {
			t.Errorf("a day later: %v", at)
		}
		off = 2 * jump
		if _, err := c.Stamp(); !errors.Is(err, Err) {
			t.Errorf("a jump of %v: %v", off, err)
		}
	})
}

// TestClockSetBack: the log's time goes on by the monotonic clock when the only
// server's wall clock is set back, so that clients whose clocks are right are never
// ahead of it.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var off time.Duration
		c := testClock(&off, nil)
		c.Reset(0)
		stampOf(t, c)
		for _, off = range []time.Duration{-2 * time.Second, -4 * time.Minute, -365 * 24 * time.Hour} {
			for range 50 {
				time.Sleep(10 * time.Second)
				at := stampOf(t, c)
				if behind := time.Since(at.Std()); behind < 0 || behind > 5*time.Second {
					t.Fatalf("set back by %v: stamps are %v behind", off, behind)
				}
			}
		}
	})
}

// TestClockFollowsAgreed: a leader whose clock is off stamps by the agreed clock; one
// that is near, by its own.
func TestClockFollowsAgreed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		at := func(id string, off time.Duration) reading {
			return reading{id: id, voter: true, clock: log.TimeOf(time.Now().Add(off))}
		}
		for _, off := range []time.Duration{0, 2 * time.Second, -2 * time.Second, time.Hour, -2 * time.Minute, 365 * 24 * time.Hour} {
			a := agree(at("s1", off), []reading{at("s2", 5*time.Millisecond), at("s3", -5*time.Millisecond)}, 3*time.Second, time.Now())
			c := testClock(&off, a)
			c.Reset(0)
			time.Sleep(time.Minute)
			want := off
			if off.Abs() > 3*time.Second {
				want = 0
			}
			if got := time.Until(stampOf(t, c).Std()); (got - want).Abs() > 10*time.Millisecond {
				t.Errorf("off by %v: stamps by %v", off, got)
			}
			if a.Wrong("s1") != (want != off) || a.Wrong("s2") || !a.right("s3") {
				t.Errorf("off by %v: judged %v, s1 wrong %v", off, a.Judged, a.Wrong("s1"))
			}
		}
	})
}

// TestTwoClocksDiffer: with two that differ no clock is judged, and the log's time goes
// on from where it is, whichever of them leads and whichever is wrong.
func TestTwoClocksDiffer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, off := range []time.Duration{time.Hour, -time.Hour, 365 * 24 * time.Hour, -2 * time.Minute} {
			for _, own := range []time.Duration{0, off} {
				other := off - own
				a := agree(reading{id: "s1", voter: true, clock: log.TimeOf(time.Now().Add(own))},
					[]reading{{id: "s2", voter: true, clock: log.TimeOf(time.Now().Add(other))}}, 3*time.Second, time.Now())
				if a.Judged || a.Wrong("s1") || a.Wrong("s2") {
					t.Errorf("%v and %v: judged", own, other)
				}
				c := testClock(&own, a)
				c.Reset(log.TimeOf(time.Now()))
				for range 10 {
					time.Sleep(time.Minute)
					if got := time.Until(stampOf(t, c).Std()); got.Abs() > time.Millisecond {
						t.Fatalf("own clock %v, the other's %v: stamps by %v", own, other, got)
					}
				}
			}
		}
	})
}

// TestTimeComesBack: a log that is less than an hour ahead of the clocks that a
// majority agrees on comes back to them, and never goes backwards on the way.
func TestTimeComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		off := time.Duration(0)
		now := reading{voter: true, clock: log.TimeOf(time.Now())}
		others := []reading{now, now}
		now.id, others[0].id, others[1].id = "s1", "s2", "s3"
		c := testClock(&off, agree(now, others, 3*time.Second, time.Now()))
		c.Reset(log.TimeOf(time.Now().Add(10*time.Minute + 7*time.Second)))
		var last log.Time
		for range 25 {
			time.Sleep(time.Minute)
			at := max(stampOf(t, c), last) // as the log has it
			if at == last {
				t.Fatalf("time stands at %v", at)
			}
			last = at
		}
		if ahead := time.Until(last.Std()); ahead.Abs() > 3*time.Second {
			t.Errorf("25 minutes later still %v ahead", ahead)
		}
	})
}

// right reports whether a server's clock is known to be near the agreed one.
func (a *Agreement) right(id string) bool {
	_, known := a.Differs[id]
	return a.Judged && known && !a.far(id)
}
