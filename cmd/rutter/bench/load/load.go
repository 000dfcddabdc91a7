// Package load runs a closed loop of writers and measures them. It does not know what
// is written, and imports only the standard library, so that the same code can measure
// another product.
//
// Concurrency: Run starts the writers and returns when they have ended.
package load

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Plan is the number of writers and how long they write. At least one of Duration and
// Count must be set.
type Plan struct {
	Writers  int
	Duration time.Duration // 0: until Count
	Count    uint64        // operations of all writers together; 0: until Duration
	Warm     time.Duration // time before measuring begins
	// Do performs operation n of a writer, both from 0. An error is counted, and
	// the writer goes on.
	Do func(ctx context.Context, writer int, n uint64) error
	// Progress, if not nil, is called every second with the count so far.
	Progress func(done uint64, elapsed time.Duration)
}

// ReaderGC is GOGC, in percent, of a reader, for our program and for others. A reader
// that keeps nothing of what it reads would otherwise collect garbage hundreds of times
// a second.
const ReaderGC = 800

// Outcome is the result of a Plan. Durations are in seconds or milliseconds, as their
// names say.
type Outcome struct {
	Writers    int     `json:"writers"`
	Count      uint64  `json:"count"`
	Errors     uint64  `json:"errors"`
	FirstError string  `json:"first_error,omitempty"`
	Seconds    float64 `json:"seconds"`
	PerSecond  float64 `json:"per_second"`
	P50        float64 `json:"p50_ms"`
	P90        float64 `json:"p90_ms"`
	P99        float64 `json:"p99_ms"`
	Max        float64 `json:"max_ms"`
	// LongestGap is the longest time during which nothing was acknowledged.
	LongestGap float64 `json:"longest_gap_ms"`
}

// runner is a Plan that runs.
type runner struct {
	plan      Plan
	begin     time.Time // of what is measured
	issued    atomic.Uint64
	done      atomic.Uint64
	errors    atomic.Uint64
	lastDone  atomic.Int64 // ns since begin
	gap       atomic.Int64 // ns
	firstOnce sync.Once
	first     string
}

// Run executes the plan. It ends early if ctx ends.
func Run(ctx context.Context, plan Plan) Outcome {
	r := &runner{plan: plan, begin: time.Now().Add(plan.Warm)}
	if plan.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, r.begin.Add(plan.Duration))
		defer cancel()
	}
	histograms := make([]Histogram, plan.Writers)
	var writers sync.WaitGroup
	for i := range plan.Writers {
		writers.Go(func() { r.write(ctx, i, &histograms[i]) })
	}
	ended := make(chan struct{})
	var told sync.WaitGroup
	if plan.Progress != nil {
		told.Go(func() { r.tell(ended) })
	}
	writers.Wait()
	elapsed := time.Duration(r.lastDone.Load())
	close(ended)
	told.Wait()
	return r.outcome(histograms, elapsed)
}

func (r *runner) write(ctx context.Context, writer int, h *Histogram) {
	// Only the loop checks ctx: operations that are under way at the end are awaited.
	work := context.WithoutCancel(ctx)
	for n := uint64(0); ctx.Err() == nil; n++ {
		if r.plan.Count > 0 && r.issued.Add(1) > r.plan.Count {
			return
		}
		begin := time.Now()
		err := r.plan.Do(work, writer, n)
		end := time.Now()
		switch since := end.Sub(r.begin); {
		case begin.Before(r.begin): // warming up
		case err != nil:
			r.errors.Add(1)
			r.firstOnce.Do(func() { r.first = err.Error() })
		default:
			h.Add(end.Sub(begin))
			r.done.Add(1)
			r.note(int64(since))
		}
	}
}

// note records the time of an acknowledgement, in ns since the begin.
func (r *runner) note(at int64) {
	for last := r.lastDone.Load(); at > last; last = r.lastDone.Load() {
		if !r.lastDone.CompareAndSwap(last, at) {
			continue
		}
		for gap := r.gap.Load(); at-last > gap; gap = r.gap.Load() {
			if r.gap.CompareAndSwap(gap, at-last) {
				return
			}
		}
		return
	}
}

func (r *runner) tell(ended <-chan struct{}) {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			r.plan.Progress(r.done.Load(), max(0, time.Since(r.begin)))
		case <-ended:
			return
		}
	}
}

func (r *runner) outcome(histograms []Histogram, elapsed time.Duration) Outcome {
	var all Histogram
	for i := range histograms {
		all.Merge(&histograms[i])
	}
	o := Outcome{
		Writers: r.plan.Writers, Count: r.done.Load(), Errors: r.errors.Load(), FirstError: r.first, Seconds: elapsed.Seconds(),
		P50: Millis(all.Quantile(0.5)), P90: Millis(all.Quantile(0.9)), P99: Millis(all.Quantile(0.99)), Max: Millis(all.Max()),
		LongestGap: Millis(time.Duration(r.gap.Load())),
	}
	if elapsed > 0 {
		o.PerSecond = float64(o.Count) / elapsed.Seconds()
	}
	return o
}

// Millis returns d in milliseconds.
func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
