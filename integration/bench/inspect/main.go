// Command inspect measures how people read the log: the scan of a filter, the
// state at any place of the past, the first line of `rutter log tail`, and the
// work of the console's main thread while entries arrive. It ends with one line
// of key=value: see `make bench-inspect`. What cannot be measured here, such as
// the console without Chromium, is na.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"rutter/integration/bench"
)

// keys are those of the last line, in its order.
var keys = []string{"scan_per_s", "state_at_p99_ms", "tail_first_line_ms", "console_p99_ms"}

// suite is one run.
type suite struct {
	rutter          string // the program
	dir             string // keeps the large folder for the next run
	events, objects int    // in it
	seconds         int    // for which the console is measured
	values          map[string]string
}

// parts are what is measured, in order: state makes the folder that scan reads.
var parts = []struct {
	name string
	do   func(context.Context, *suite) error
}{{"state", state}, {"scan", scanned}, {"live", live}}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench-inspect:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	s := &suite{values: make(map[string]string)}
	only := flag.String("part", "all", "all, state, scan or live (tail and console)")
	flag.StringVar(&s.rutter, "rutter", "bin/rutter", "`PROGRAM` to measure")
	flag.StringVar(&s.dir, "dir", "bin/bench-inspect", "`FOLDER` that keeps the large log")
	flag.IntVar(&s.events, "events", 10_000_000, "`N` entries of the large log")
	flag.IntVar(&s.objects, "objects", 1_000_000, "`N` objects in it")
	flag.IntVar(&s.seconds, "seconds", 20, "`N` seconds for which the console is measured")
	flag.Parse()
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	ran := false
	for _, p := range parts {
		if *only != "all" && *only != p.name {
			continue
		}
		ran = true
		begin := time.Now()
		if partErr := p.do(ctx, s); partErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", p.name, partErr))
		}
		fmt.Fprintf(os.Stderr, "%s took %s\n", p.name, time.Since(begin).Round(time.Second))
	}
	if !ran {
		return fmt.Errorf("-part %q: want all, state, scan or live", *only)
	}
	line := make([]string, len(keys))
	for i, k := range keys {
		value := s.values[k]
		if value == "" {
			value = "na"
		}
		line[i] = k + "=" + value
	}
	fmt.Println(strings.Join(line, " "))
	return err
}

func state(ctx context.Context, s *suite) error {
	ms, err := measureState(ctx, s.dir, s.events, s.objects)
	if err == nil {
		s.values["state_at_p99_ms"] = fmt.Sprintf("%.1f", ms)
	}
	return err
}

func scanned(ctx context.Context, s *suite) error {
	dir := filepath.Join(s.dir, fmt.Sprintf("%s-%d-%d", stateName, s.events, s.objects))
	rate, err := measureScan(ctx, dir)
	if err == nil {
		s.values["scan_per_s"] = fmt.Sprintf("%.0f", rate)
	}
	return err
}

// live measures what needs servers.
func live(ctx context.Context, s *suite) (err error) {
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
		s.values["console_p99_ms"] = fmt.Sprintf("%.1f", p99)
	}
	ms, tailErr := measureTail(ctx, s.rutter, c.Servers[0].URL)
	if tailErr == nil {
		s.values["tail_first_line_ms"] = fmt.Sprintf("%.1f", ms)
	}
	return errors.Join(consoleErr, tailErr)
}
