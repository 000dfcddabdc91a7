package gcpace

import (
	"context"
	"log/slog"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

const mib = 1 << 20

func TestPercentOf(t *testing.T) {
	for _, test := range []struct {
		what       string
		rate       float64
		live, most uint64
		want       int
	}{
		{"a new server, idle", 0, 4 * mib, 256 * mib, 825},
		{"a small state, a busy minute", 2 * mib, 64 * mib, 256 * mib, 75},
		{"a small state, many writes", 10 * mib, 64 * mib, 256 * mib, 156},
		{"a small state, full load", 300 * mib, 64 * mib, 256 * mib, 500},
		{"a large state, idle", 0, 1024 * mib, 256 * mib, 28},
		{"a large state, full load", 300 * mib, 1024 * mib, 256 * mib, 125},
		{"nothing allowed beside what is live", 300 * mib, 64 * mib, 0, 100},
		{"no collection yet", 0, 0, 256 * mib, 3200},
	} {
		if got := percentOf(test.rate, test.live, test.most); got != test.want {
			t.Errorf("%s: %d, want %d", test.what, got, test.want)
		}
	}
}

// TestPercentIsBounded: the garbage is never more than was allowed, and never nothing.
func TestPercentIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(0, 1e12).Draw(t, "rate")
		live := rapid.Uint64Range(0, 1<<40).Draw(t, "live")
		most := rapid.Uint64Range(0, 64<<30).Draw(t, "most")
		percent := percentOf(rate, live, most)
		garbage := float64(percent) / 100 * float64(max(live, mib))
		if slack := float64(max(live, mib)) / 100; garbage > max(float64(live)+float64(most), float64(least+live/leastShare))+slack || percent < 0 {
			t.Fatalf("%d percent of %d live", percent, live)
		}
	})
}

// TestPaceFollowsTheLoad: it rises at once with load, stays where it is while nothing
// changes, falls some seconds after the load has ended, and is what it was before at the end.
func TestPaceFollowsTheLoad(t *testing.T) {
	var sets []int
	p := &Pace{most: 256 * mib, logger: slog.New(slog.DiscardHandler), percent: 100, set: func(percent int) int {
		sets = append(sets, percent)
		return 100
	}}
	allocated := uint64(0)
	look := func(rate uint64, times int) {
		for range times {
			allocated += rate
			p.look(allocated, 64*mib)
		}
	}
	look(300*mib, 5)
	if len(sets) != 1 || sets[0] != 500 {
		t.Errorf("under load %v was set, want 500 once", sets)
	}
	look(mib, 3)
	if len(sets) != 1 {
		t.Errorf("a pause of 3 s: %v", sets)
	}
	look(mib, 30)
	if last := sets[len(sets)-1]; float64(last) > 75*same {
		t.Errorf("after the load %v was set, want about 75 in the end", sets)
	}
}

func TestRunPutsBack(t *testing.T) {
	before := debug.SetGCPercent(123)
	defer debug.SetGCPercent(before)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- New(256*mib, slog.New(slog.DiscardHandler)).Run(ctx) }()
		time.Sleep(5 * every)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if got := debug.SetGCPercent(123); got != 123 {
		t.Errorf("GOGC is %d at the end, want 123", got)
	}
}
