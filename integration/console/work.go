package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/tracing"
	"github.com/chromedp/chromedp"
)

// Work is what the page's main thread did for each update, from Chromium's own
// trace: scripts, style, layout, paint and collection of garbage alike.
type Work struct {
	Updates []time.Duration // wall time on the main thread, from one animation frame to the next, sorted
	CPU     []time.Duration // of these the thread's CPU time, sorted on its own
}

// P99 returns the 99th percentile of sorted durations; 0 if there are none.
func P99(sorted []time.Duration) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*99+99)/100-1]
}

// traceEvent is one of Chromium's trace (the Trace Event Format), times in µs.
type traceEvent struct {
	Name string  `json:"name"`
	PID  int     `json:"pid"`
	TID  int     `json:"tid"`
	TS   float64 `json:"ts"`
	Dur  float64 `json:"dur"`
	TDur float64 `json:"tdur"`
}

// Names of the trace's events: one task of a thread, and an animation frame's
// script within one.
const (
	traceTask  = "RunTask"
	traceFrame = "FireAnimationFrame"
)

// traceEnd bounds the wait for the trace's end.
const traceEnd = 30 * time.Second

// Measure traces the page for d.
func (b *Browser) Measure(ctx context.Context, d time.Duration) (Work, error) {
	var events []traceEvent
	var bad error
	complete := make(chan struct{})
	listening, cancel := context.WithCancel(b.ctx)
	defer cancel()
	err := chromedp.Listen(listening, func(event any) {
		switch e := event.(type) {
		case *tracing.EventDataCollected:
			for _, raw := range e.Value {
				var one traceEvent
				if err := json.Unmarshal(raw, &one); err != nil {
					bad = errors.Join(bad, err)
				} else if one.Name == traceTask || one.Name == traceFrame {
					events = append(events, one)
				}
			}
		case *tracing.EventTracingComplete:
			close(complete)
		}
	})
	if err != nil {
		return Work{}, err
	}
	if err := b.trace(ctx, d); err != nil {
		return Work{}, fmt.Errorf("trace the page: %w", err)
	}
	select {
	case <-complete:
	case <-ctx.Done():
		return Work{}, ctx.Err()
	case <-time.After(traceEnd):
		return Work{}, fmt.Errorf("the browser did not end its trace within %s", traceEnd)
	}
	if bad != nil {
		return Work{}, fmt.Errorf("the browser's trace: %w", bad)
	}
	return workOf(events)
}

// trace makes the browser trace for d; the events come after it.
func (b *Browser) trace(ctx context.Context, d time.Duration) error {
	bounded, done := b.within(ctx)
	defer done()
	if _, err := chromedp.Call(bounded, tracing.Start, tracing.StartParams{TraceConfig: &tracing.TraceConfig{
		RecordMode:         "recordAsMuchAsPossible",
		IncludedCategories: []string{"devtools.timeline", "disabled-by-default-devtools.timeline"}, ExcludedCategories: []string{"*"},
	}}); err != nil {
		return err
	}
	if err := chromedp.Do(bounded, chromedp.Sleep(d)); err != nil {
		return err
	}
	_, err := chromedp.Call(bounded, tracing.End, cdp.Empty{})
	return err
}

// workOf adds the tasks of the page's main thread up, from one frame to the next.
func workOf(events []traceEvent) (w Work, err error) {
	slices.SortStableFunc(events, func(a, b traceEvent) int { return cmp.Compare(a.TS, b.TS) })
	at := slices.IndexFunc(events, func(e traceEvent) bool { return e.Name == traceFrame })
	if at < 0 {
		return w, errors.New("the page drew no frame while it was measured")
	}
	pid, tid := events[at].PID, events[at].TID
	var wall, cpu float64
	seen := false
	var task traceEvent // the one that began last: a frame belongs to it
	for _, e := range events {
		if e.PID != pid || e.TID != tid {
			continue
		}
		if e.Name == traceTask {
			task = e
			wall, cpu = wall+e.Dur, cpu+e.TDur
			continue
		}
		if seen {
			// All before the frame's own task is of the update before.
			w.Updates = append(w.Updates, micros(wall-task.Dur))
			w.CPU = append(w.CPU, micros(cpu-task.TDur))
		}
		seen, wall, cpu = true, task.Dur, task.TDur
	}
	slices.Sort(w.Updates)
	slices.Sort(w.CPU)
	return w, nil
}

func micros(n float64) time.Duration { return time.Duration(n * float64(time.Microsecond)) }
