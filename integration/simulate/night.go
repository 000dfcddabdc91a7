package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"rutter/integration/simulate/coverage"
	"rutter/integration/simulate/history"
)

const (
	// shrunkSorts bounds of how many sorts of failures a run shrinks one.
	shrunkSorts = 8
	// shrinkTries bounds the histories that shrinking one tries, each up to shrinkReplays times.
	shrinkTries   = 60
	shrinkReplays = 4
	// shrinkTime bounds the real time of shrinking one.
	shrinkTime = 10 * time.Minute
	// keptAtOnce bounds the failures of a run that are kept as they happen: what a process
	// printed may have 2 MiB. Later ones are kept only as one of their sort.
	keptAtOnce = 100
	// tellEvery is how often a run says how far it is.
	tellEvery = 30 * time.Second
)

// Night runs many histories.
type Night struct {
	Pool     *Pool
	Workers  int             // histories at the same time
	Duration time.Duration   // of each history, simulated; 0: a minute
	Themes   []history.Theme // that histories draw from; none: all
	Out      io.Writer       // what people read
	Keep     string          // a folder for histories that failed; made if missing
	Shrink   bool            // look for a smaller history of each sort of failure

	mu     sync.Mutex
	table  coverage.Table
	failed []failure
	sim    time.Duration
	begun  time.Time
	told   time.Time
	took   time.Duration // of all histories, without shrinking
}

// failure is a history that failed.
type failure struct {
	h      history.History
	result Result
}

// Summary is what a run came to.
type Summary struct {
	Histories, Failed  int
	PerSecond, Speedup float64 // histories a real second; simulated seconds a real second
	Covered            int     // states that occurred
	Unfinished         int     // seeds that were not run, or not to their end
	Table              coverage.Table
}

// Line is the summary as key=value.
func (s Summary) Line() string {
	return fmt.Sprintf("histories_per_s=%.2f sim_speedup=%.1f states_covered=%d", s.PerSecond, s.Speedup, s.Covered)
}

// Run runs the histories of the seeds and reports on them. The end of ctx ends it early. The
// error says what failed: histories, or a goal that was never reached.
func (n *Night) Run(ctx context.Context, seeds []uint64) (Summary, error) {
	n.begun = time.Now()
	n.told = n.begun
	next := make(chan uint64)
	var unfinished int
	var broken error
	var all sync.WaitGroup
	for range max(n.Workers, 1) {
		all.Go(func() {
			for seed := range next {
				if err := n.one(ctx, seed); err != nil {
					n.mu.Lock()
					unfinished++
					if ctx.Err() == nil {
						broken = errors.Join(broken, err)
					}
					n.mu.Unlock()
				}
			}
		})
	}
	for i, seed := range seeds {
		select {
		case next <- seed:
			continue
		case <-ctx.Done():
			n.mu.Lock()
			unfinished += len(seeds) - i
			n.mu.Unlock()
		}
		break
	}
	close(next)
	all.Wait()
	n.took = time.Since(n.begun)
	return n.report(ctx, unfinished, broken)
}

// one runs the history of a seed.
func (n *Night) one(ctx context.Context, seed uint64) error {
	h := OfSeed(seed, n.Duration, n.Themes...)
	result, err := n.Pool.Run(ctx, h)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.table.Add(result.Coverage)
	n.sim += result.Simulated
	if result.Failed() {
		n.failed = append(n.failed, failure{h, result})
		if len(n.failed) <= keptAtOnce {
			n.write(history.File{Why: "found by make simulate", Failures: result.Failures, History: h}, result.Output)
		}
		fmt.Fprintf(n.Out, "seed %d FAILED after %v: %s\n  again: %s\n", seed, result.Real.Round(time.Second/10), first(result.Failures), n.command(h))
	}
	if time.Since(n.told) > tellEvery {
		n.told = time.Now()
		fmt.Fprintf(n.Out, "%v: %d histories, %.2f a second, %d failed, %d of %d states\n", time.Since(n.begun).Round(time.Second),
			n.table.Histories, float64(n.table.Histories)/time.Since(n.begun).Seconds(), len(n.failed), n.table.Covered(), len(coverage.States))
	}
	return nil
}

// first is the first failure, shortened for a line.
func first(failures []string) string {
	line, _, _ := strings.Cut(failures[0], "\n")
	if len(line) > 400 {
		line = line[:400] + "..."
	}
	if len(failures) > 1 {
		line += fmt.Sprintf(" (and %d more)", len(failures)-1)
	}
	return line
}

// command is what runs the history of a seed again.
func (n *Night) command(h history.History) string {
	if n.Duration != 0 && n.Duration != usualDuration {
		return fmt.Sprintf("make simulate SEED=%d DURATION=%v", h.Seed, n.Duration)
	}
	return fmt.Sprintf("make simulate SEED=%d", h.Seed)
}

// report prints the table and the failures by their sorts, and shrinks one of each.
func (n *Night) report(ctx context.Context, unfinished int, broken error) (Summary, error) {
	seconds := n.took.Seconds()
	s := Summary{
		Histories: n.table.Histories, Failed: len(n.failed), Unfinished: unfinished, Covered: n.table.Covered(), Table: n.table,
		PerSecond: float64(n.table.Histories) / seconds, Speedup: n.sim.Seconds() / seconds,
	}
	fmt.Fprintf(n.Out, "\n%v%d histories in %v: %.2f a second, %.1f simulated seconds a second; %d of %d states; %d failed; %d were not run\n",
		&n.table, s.Histories, n.took.Round(time.Second), s.PerSecond, s.Speedup, s.Covered, len(coverage.States), s.Failed, unfinished)
	err := broken
	if s.Failed > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d histories failed", s.Failed, s.Histories))
		n.sorts(ctx)
	}
	for _, state := range n.table.Missing() {
		err = errors.Join(err, fmt.Errorf("%d histories never came to the state %s (%s): either the mixtures of package history have lost it, or nobody counts it", s.Histories, state.Name, state.What))
	}
	return s, err
}

// sorts shows failures by their sorts, the most frequent first.
func (n *Night) sorts(ctx context.Context) {
	by := map[string][]failure{}
	for _, f := range n.failed {
		by[f.result.Sort()] = append(by[f.result.Sort()], f)
	}
	var names []string
	for name := range by {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := len(by[b]) - len(by[a]); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		fewest := slices.MinFunc(by[name], func(a, b failure) int { return len(a.h.Faults) - len(b.h.Faults) })
		fmt.Fprintf(n.Out, "\n%d times: %s\n", len(by[name]), name)
		file := history.File{Why: "found by make simulate: " + name, Failures: fewest.result.Failures, History: fewest.h}
		if n.Shrink && i < shrunkSorts && ctx.Err() == nil {
			n.shrink(ctx, &file, fewest)
		}
		n.keep(file, fewest.result.Output)
	}
}

// keep writes a history that failed, and what its process printed, and says where.
func (n *Night) keep(file history.File, output string) {
	path := n.write(file, output)
	fmt.Fprintf(n.Out, "%v\nkept in %s; again: make simulate HISTORY=%s\n", indented(file.History.String()), path, path)
	if output != "" {
		fmt.Fprintf(n.Out, "what its process printed is in %s\n", outputOf(path))
	}
}

// write writes the files of keep: at once, so that a run that is killed leaves what it found.
func (n *Night) write(file history.File, output string) (path string) {
	path = filepath.Join(n.Keep, fmt.Sprintf("seed-%d.json", file.History.Seed))
	err := history.Write(path, file)
	if err == nil && output != "" {
		err = os.WriteFile(outputOf(path), []byte(output), 0o644)
	}
	if err != nil {
		fmt.Fprintf(n.Out, "the history was not kept: %v\n", err)
	}
	return path
}

func outputOf(path string) string { return strings.TrimSuffix(path, ".json") + ".txt" }

func indented(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }
