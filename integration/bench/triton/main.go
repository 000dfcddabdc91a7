// Command triton measures the surfaces of Triton that three servers have, and
// ends with one line of key=value: see `make bench-triton`. What a part measured
// is kept in a file, so that the line of a later part has it too; what no part
// has measured is na.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"time"

	"rutter/cmd/rutter/bench"
	"rutter/integration/bench/figures"
)

// keys are those of the last line, in its order.
var keys = []string{"item_p99_ms_200", "roam_lost", "roam_dup", "roam_gap_s", "list_p99_ms", "write_stall_ms", "blind_one_url_s"}

// suite is one run.
type suite struct {
	*figures.Figures
	rutter   string // the program
	dir      string
	duration time.Duration
}

// parts are what is measured. Those of one surface share a file, as changefeed.go.
func (s *suite) parts() []figures.Part {
	return []figures.Part{
		{Name: "items", Do: func(ctx context.Context) error { return runItems(ctx, s) }},
		{Name: "roam", Do: func(ctx context.Context) error { return runRoam(ctx, s) }},
		{Name: "idle", Do: func(ctx context.Context) error { return runIdle(ctx, s) }},
		{Name: "list", Do: func(ctx context.Context) error { return runLists(ctx, s) }},
		{Name: "blind", Do: func(ctx context.Context) error { return runBlind(ctx, s) }},
	}
}

func main() { figures.Main("triton", run) }

func run(ctx context.Context) (err error) {
	s := &suite{Figures: figures.NewFigures("triton", keys...)}
	only := flag.String("part", "all", "one of "+figures.PartNames(s.parts()))
	flag.StringVar(&s.rutter, "rutter", "bin/rutter", "`PROGRAM` to measure")
	flag.DurationVar(&s.duration, "duration", 10*time.Second, "`TIME` to write in items")
	flag.Parse()
	if s.dir, err = os.MkdirTemp("", "rutter-bench-triton-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	return s.Run(ctx, *only, s.parts())
}

// on runs fn on a fresh cluster of three processes.
func (s *suite) on(ctx context.Context, name string, fn func(c *bench.Cluster) error) (err error) {
	c, err := bench.StartCluster(ctx, bench.Options{Program: s.rutter, Servers: 3, Dir: filepath.Join(s.dir, name), Flags: []string{"--log-level=error"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop(), os.RemoveAll(filepath.Join(s.dir, name))) }()
	return fn(c)
}
