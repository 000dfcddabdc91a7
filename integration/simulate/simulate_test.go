package simulate

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/mutants"
)

// What make simulate asks for. Without any of them TestSimulate is skipped.
var (
	flagHistories = flag.Int("histories", 0, "run so many histories, of seeds that no night has used")
	flagSeed      = flag.Uint64("seed", 0, "run the history of this seed only")
	flagHistory   = flag.String("history", "", "run the history of this file only")
	flagRepeat    = flag.Int("repeat", 1, "with seed or history: run it so often, and say how often it failed")
	flagDuration  = flag.Duration("duration", 0, "how long a history is, in simulated time (1m)")
	flagFor       = flag.Duration("for", 0, "begin no history after so much real time")
	flagLog       = flag.String("log", "", "with seed or history: a file for what happens in it")
	flagKeep      = flag.String("keep", "", "a folder for histories that failed (bin/simulate of the repository)")
	flagShrink    = flag.Bool("shrink", true, "look for the smallest history that fails as well")
	flagWorkers   = flag.Int("workers", runtime.NumCPU()+1, "histories at the same time: one of them waits for its disk")
	flagAdvance   = flag.Bool("advance", false, "with histories: note in testdata/seeds that these are used")
)

const (
	seedsFile   = "testdata/seeds"
	fixedFile   = "testdata/fixed"
	regressions = "testdata/regressions/*.json"
)

func pool(t *testing.T) *Pool {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &Pool{Program: program, Log: *flagLog, Mutant: os.Getenv(mutants.ChosenBy)}
	t.Cleanup(p.Close)
	return p
}

func night(t *testing.T) *Night {
	keep := *flagKeep
	if keep == "" {
		keep = filepath.Join("..", "..", "bin", "simulate")
	}
	return &Night{Pool: pool(t), Workers: *flagWorkers, Duration: *flagDuration, Themes: themesOf(t, *flagThemes), Out: os.Stdout, Keep: keep, Shrink: *flagShrink}
}

// TestSimulate is make simulate.
func TestSimulate(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt)
	defer stop()
	n := night(t)
	var err error
	switch {
	case *flagHistory != "":
		err = replayFile(ctx, n, *flagHistory)
	case *flagSeed != 0:
		err = n.Replay(ctx, OfSeed(*flagSeed, *flagDuration, n.Themes...), *flagRepeat)
	case *flagHistories > 0:
		err = mass(ctx, n)
	default:
		t.Skip("make simulate runs this")
	}
	if err != nil {
		t.Fatal(err)
	}
}

func replayFile(ctx context.Context, n *Night, path string) error {
	f, err := history.Read(path)
	if err != nil {
		return err
	}
	fmt.Println(f.Why)
	return n.Replay(ctx, f.History, *flagRepeat)
}

// mass runs histories of seeds that no run before has used, and prints the line that make
// bench-simulate ends with.
func mass(ctx context.Context, n *Night) error {
	from, err := NextSeed(seedsFile)
	if err != nil {
		return err
	}
	if *flagFor > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, *flagFor)
		defer cancel()
	}
	var seeds []uint64
	for i := range *flagHistories {
		seeds = append(seeds, from+uint64(i))
	}
	fmt.Printf("seeds %d to %d, %d at the same time\n", from, seeds[len(seeds)-1], n.Workers)
	s, err := n.Run(ctx, seeds)
	if *flagAdvance {
		if err := Advance(seedsFile, from+uint64(s.Histories)); err != nil {
			return err
		}
	}
	fmt.Println(s.Line())
	return err
}

// TestBenchSimulate is make bench-simulate: the same seeds each time, so that two programs can be
// compared. What the simulator finds of planted bugs is counted by package mutants.
func TestBenchSimulate(t *testing.T) {
	if *flagHistories == 0 || flag.Lookup("test.run").Value.String() != "^TestBenchSimulate$" {
		t.Skip("make bench-simulate runs this")
	}
	n := night(t)
	n.Shrink = false
	var seeds []uint64
	for i := range *flagHistories {
		seeds = append(seeds, benchSeed+uint64(i))
	}
	s, failed := n.Run(t.Context(), seeds)
	p, err := CountPlanted(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if failed != nil {
		t.Log(failed) // the numbers are those of a run with failures too
	}
	fmt.Println(s.Line(), p)
}

// benchSeed is the first of the seeds of make bench-simulate.
const benchSeed = 1_000_000_001

// What make test runs.
const (
	testHistories = 20
	testDuration  = 20 * time.Second
	// testLimit is the limit of one of these histories in real time: a machine that has much
	// else to do is no failure.
	testLimit = 5 * time.Minute
)

// Twenty small histories or more, of fixed seeds and of fresh ones, which are printed. A fresh
// seed that fails is a finding: keep what it printed, and run it again as it says.
func TestHistories(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	seeds, err := FixedSeeds(fixedFile)
	if err != nil {
		t.Fatal(err)
	}
	for fresh := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0)); len(seeds) < testHistories; {
		if seed := fresh.Uint64() >> 24; seed%wideEvery != 0 {
			seeds = append(seeds, seed)
		}
	}
	t.Logf("seeds %d", seeds)
	n := night(t)
	n.Duration, n.Shrink, n.Pool.Limit = testDuration, false, testLimit
	if _, err := n.Run(t.Context(), seeds); err != nil {
		t.Error(err)
	}
}

// Each history that found something once is run.
func TestRegressions(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs whole histories")
	}
	files, err := filepath.Glob(regressions)
	if err != nil {
		t.Fatal(err)
	}
	p := pool(t)
	p.Limit = testLimit
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f, err := history.Read(path)
			if err != nil {
				t.Fatal(err)
			}
			r, err := p.Run(t.Context(), f.History)
			if err != nil {
				t.Fatal(err)
			}
			for _, failure := range r.Failures {
				t.Errorf("%s\n%s\nagain: make simulate HISTORY=integration/simulate/%s", f.Why, failure, path)
			}
		})
	}
}
