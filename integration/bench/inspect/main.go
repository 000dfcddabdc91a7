// Command inspect measures how people read the log: the scan of a filter, the
// state at any place of the past, the first line of `rutter log tail`, and the
// work of the console's main thread while entries arrive. It ends with one line
// of key=value: see `make bench-inspect`. What a part measured is kept in a file, so
// that the line of a later part has it too; what no part has measured, or cannot
// be measured here, such as the console without Chromium, is na.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"rutter/cmd/rutter/bench"
	"rutter/integration/bench/figures"
)

// keys are those of the last line, in its order.
var keys = []string{"scan_per_s", "state_at_p99_ms", "tail_first_line_ms", "console_p99_ms"}

// suite is one run.
type suite struct {
	*figures.Figures
	rutter          string // the program
	dir             string // keeps the large folder for the next run
	events, objects int    // in it
	seconds         int    // for which the console is measured
}

// parts are what is measured, in order: state makes the folder that scan reads.
func (s *suite) parts() []figures.Part {
	return []figures.Part{{Name: "state", Do: s.state}, {Name: "scan", Do: s.scan}, {Name: "live", Do: s.live}}
}

func main() { figures.Main("inspect", run) }

func run(ctx context.Context) error {
	s := &suite{Figures: figures.NewFigures("inspect", keys...)}
	only := flag.String("part", "all", "one of "+figures.PartNames(s.parts())+" (live is tail and console)")
	flag.StringVar(&s.rutter, "rutter", "bin/rutter", "`PROGRAM` to measure")
	flag.StringVar(&s.dir, "dir", "bin/bench-inspect", "`FOLDER` that keeps the large log")
	flag.IntVar(&s.events, "events", 10_000_000, "`N` entries of the large log")
	flag.IntVar(&s.objects, "objects", 1_000_000, "`N` objects in it")
	flag.IntVar(&s.seconds, "seconds", 20, "`N` seconds for which the console is measured")
	flag.Parse()
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	return s.Run(ctx, *only, s.parts())
}

func (s *suite) state(ctx context.Context) error {
	ms, err := measureState(ctx, s.dir, s.events, s.objects)
	if err == nil {
		s.Set("state_at_p99_ms", ms)
	}
	return err
}

func (s *suite) scan(ctx context.Context) error {
	dir := filepath.Join(s.dir, fmt.Sprintf("%s-%d-%d", stateName, s.events, s.objects))
	rate, err := measureScan(ctx, dir)
	if err == nil {
		s.Set("scan_per_s", rate)
	}
	return err
}

// live measures what needs servers.
func (s *suite) live(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "rutter-bench-inspect-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c, err := bench.StartCluster(ctx, bench.Options{Program: s.rutter, Servers: 3, Dir: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	p99, consoleErr := measureConsole(ctx, c, time.Duration(s.seconds)*time.Second)
	if consoleErr == nil {
		s.Set("console_p99_ms", p99)
	}
	ms, tailErr := measureTail(ctx, s.rutter, c.Servers[0].URL)
	if tailErr == nil {
		s.Set("tail_first_line_ms", ms)
	}
	return errors.Join(consoleErr, tailErr)
}
