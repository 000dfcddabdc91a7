package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/chromedp/chromedp"

	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/load"
	"rutter/integration/console"
)

// What the console is measured with.
const (
	consoleRate    = 1000 // entries a second
	consoleWriters = 32
	consoleWarm    = 3 * time.Second
	consoleEvent   = 400 // bytes of an entry
)

// measureConsole returns the p99 of the main thread's work, its CPU time, from one
// frame of the log's view to the next, in ms, while consoleRate entries arrive
// each second. Entries that are lost are an error, frames are not. The wall time
// is printed beside it: with servers, writers and browser on two cores half of it
// and more is waiting for a core, which is no work of the page.
func measureConsole(ctx context.Context, c *bench.Cluster, d time.Duration) (p99 float64, err error) {
	b, err := console.Start(ctx)
	if errors.Is(err, console.ErrNoBrowser) {
		fmt.Fprintln(os.Stderr, err)
		return 0, err
	}
	if err != nil {
		return 0, err
	}
	defer b.Close()
	w, err := bench.NewWorkload(consoleEvent)
	if err != nil {
		return 0, err
	}
	if _, err := bench.Append(ctx, c, w, 1, false, load.Plan{Writers: 1, Count: 1}); err != nil {
		return 0, err // a head to begin at
	}
	if err := b.Do(ctx, chromedp.Navigate(c.Servers[0].URL+"/console/#/log")); err != nil {
		return 0, err
	}
	if err := b.Await(ctx, "rutter.counts().received >= 1"); err != nil {
		return 0, err
	}
	written := make(chan error, 1)
	go func() { written <- writePaced(ctx, c, w, d+2*consoleWarm) }()
	select {
	case <-ctx.Done():
		return 0, errors.Join(ctx.Err(), <-written)
	case <-time.After(consoleWarm):
	}
	work, err := b.Measure(ctx, d)
	if err = errors.Join(err, <-written); err != nil {
		return 0, err
	}
	head, err := c.Client.Head(ctx)
	if err != nil {
		return 0, err
	}
	bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := b.Await(bounded, fmt.Sprintf("rutter.counts().received === %d && rutter.counts().gaps === 0", head)); err != nil {
		return 0, fmt.Errorf("entries were lost: %w", err)
	}
	n := len(work.Updates)
	fmt.Printf("console: %d frames in %s, of %d entries; main thread's CPU p50 %.1f ms, p99 %.1f ms, at most %.1f ms; wall p50 %.1f ms, p99 %.1f ms, at most %.1f ms\n",
		n, d, head, load.Millis(work.CPU[n/2]), load.Millis(console.P99(work.CPU)), load.Millis(work.CPU[n-1]),
		load.Millis(work.Updates[n/2]), load.Millis(console.P99(work.Updates)), load.Millis(work.Updates[n-1]))
	return load.Millis(console.P99(work.CPU)), nil
}

// writePaced writes consoleRate entries a second for d, each a change.
func writePaced(ctx context.Context, c *bench.Cluster, w *bench.Workload, d time.Duration) error {
	begin := time.Now()
	return bench.Streams(ctx, c, 2, func(submit []bench.Submit) error {
		outcome := load.Run(ctx, load.Plan{Writers: consoleWriters, Duration: d, Do: func(ctx context.Context, writer int, n uint64) error {
			// Each writer has its own places in the second.
			due := begin.Add(time.Duration(n*consoleWriters+uint64(writer)) * time.Second / consoleRate)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Until(due)):
			}
			_, err := submit[writer%len(submit)](ctx, w.Create())
			return err
		}})
		fmt.Printf("console: %.0f entries/s were written, %d errors\n", outcome.PerSecond, outcome.Errors)
		if outcome.PerSecond < consoleRate*0.95 {
			return fmt.Errorf("%.0f entries/s were written, want %d: %s", outcome.PerSecond, consoleRate, outcome.FirstError)
		}
		return nil
	})
}
