package load

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestHistogramQuantiles(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h Histogram
	var all []time.Duration
	for range 20000 {
		d := time.Duration(r.ExpFloat64() * float64(3*time.Millisecond))
		all = append(all, d)
		h.Add(d)
	}
	slices.Sort(all)
	for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[min(int(q*float64(len(all))), len(all)-1)]
		got := h.Quantile(q)
		if got > want || got < want-want/subBuckets-16 {
			t.Errorf("quantile %v: got %v, want %v", q, got, want)
		}
	}
	if h.Max() != all[len(all)-1] {
		t.Errorf("max %v, want %v", h.Max(), all[len(all)-1])
	}
}

func TestBuckets(t *testing.T) {
	last := -1
	for _, d := range []time.Duration{-1, 0, 15, 16, 511, 512, 513, 1023, 1024, time.Millisecond, time.Hour, 1 << 62} {
		i := bucket(d)
		if i < last {
			t.Errorf("%v is in bucket %d, before that of a shorter one", d, i)
		}
		if last = i; d >= 0 && (floor(i) > d || d < time.Hour && floor(i+1) <= d) {
			t.Errorf("%v is in bucket %d, which is from %v to %v", d, i, floor(i), floor(i+1))
		}
	}
}

func TestRunCountsAndTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Run(t.Context(), Plan{
			Writers: 4, Count: 40,
			Do: func(_ context.Context, writer int, n uint64) error {
				if writer == 0 && n == 3 {
					return errors.New("once")
				}
				time.Sleep(10 * time.Millisecond)
				return nil
			},
		})
		if o.Count != 39 || o.Errors != 1 || o.FirstError != "once" {
			t.Errorf("got %d done, %d failed (%s), want 39 and 1", o.Count, o.Errors, o.FirstError)
		}
		if o.Max != 10 || o.LongestGap != 10 || o.P50 != 10 && (o.P50 < 9.6 || o.P50 > 10) {
			t.Errorf("p50 %v, longest %v, gap %v, want 10 ms for each", o.P50, o.Max, o.LongestGap)
		}
	})
}

func TestRunEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		begin := time.Now()
		o := Run(t.Context(), Plan{
			Writers: 2, Warm: time.Second, Duration: 3 * time.Second,
			Do:       func(context.Context, int, uint64) error { time.Sleep(7 * time.Millisecond); return nil },
			Progress: func(uint64, time.Duration) { told++ },
		})
		if took := time.Since(begin); took < 4*time.Second || took > 4*time.Second+10*time.Millisecond {
			t.Errorf("it took %v, want 4 s", took)
		}
		if told < 3 || o.Count < 840 || o.Count > 860 || o.PerSecond < 280 || o.PerSecond > 290 {
			t.Errorf("%d progress lines, %d done, %.0f/s", told, o.Count, o.PerSecond)
		}
	})
}
