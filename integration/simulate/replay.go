package simulate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"rutter/integration/simulate/history"
)

// shrink makes a file's history smaller, as long as it fails in the same way in one of a few
// replays: Go's scheduler has no seed, so that a failure need not come back at once.
func (n *Night) shrink(ctx context.Context, file *history.File, f failure) {
	ctx, cancel := context.WithTimeout(ctx, shrinkTime)
	defer cancel()
	sort := f.result.Sort()
	var last Result
	fails := func(h history.History) bool {
		for _, r := range n.replays(ctx, h, shrinkReplays, sort) {
			if r.Sort() == sort {
				last = r
				return true
			}
		}
		return false
	}
	if !fails(file.History) {
		fmt.Fprintf(n.Out, "it did not come back in %d replays, and is not shrunk; ask for more with REPEAT=20\n", shrinkReplays)
		return
	}
	s := history.Shrink(file.History, shrinkTries, fails)
	file.History, file.Removed, file.Failures = s.History, s.Removed, last.Failures
	fmt.Fprintf(n.Out, "shrunk in %d tries; taken out: %s\n", s.Tries, strings.Join(s.Removed, "; "))
}

// replays runs a history several times, as many at once as there are workers, and stops when one
// fails in the given way, unless that is "".
func (n *Night) replays(ctx context.Context, h history.History, times int, until string) (results []Result) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, max(n.Workers, 1))
	for range times {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			defer func() { <-slots }()
			r, err := n.Pool.Run(ctx, h)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			results = append(results, r)
			if until != "" && r.Sort() == until {
				cancel()
			}
		})
	}
	all.Wait()
	return results
}

// Replay runs one history as often as asked, prints what it came to, and returns an error if it
// failed in any run.
func (n *Night) Replay(ctx context.Context, h history.History, times int) error {
	fmt.Fprintf(n.Out, "%v\n", h)
	results := n.replays(ctx, h, times, "")
	sorts := map[string]int{}
	failed := 0
	for _, r := range results {
		if !r.Failed() {
			continue
		}
		failed++
		if sorts[r.Sort()]++; sorts[r.Sort()] == 1 {
			for _, f := range r.Failures {
				fmt.Fprintf(n.Out, "FAILED: %s\n", f)
			}
			if r.Output != "" {
				n.keep(history.File{Why: "ended its process", Failures: r.Failures, History: h}, r.Output)
			}
		}
	}
	if times == 1 && len(results) == 1 {
		for _, name := range slices.Sorted(maps.Keys(results[0].Coverage)) {
			fmt.Fprintf(n.Out, "%-22s %d\n", name, results[0].Coverage[name])
		}
		fmt.Fprintf(n.Out, "%v simulated in %v\n", results[0].Simulated, results[0].Real)
	}
	fmt.Fprintf(n.Out, "%d of %d replays failed\n", failed, len(results))
	for _, name := range slices.Sorted(maps.Keys(sorts)) {
		fmt.Fprintf(n.Out, "%4d times: %s\n", sorts[name], name)
	}
	if len(results) < times {
		return fmt.Errorf("only %d of %d replays were run", len(results), times)
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d replays of seed %d failed", failed, len(results), h.Seed)
	}
	return nil
}
