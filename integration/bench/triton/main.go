// Command triton measures the surfaces of Triton that three servers have, and
// ends with one line of key=value: see `make bench-triton`. What a part measured
// is kept in a file, so that the line of a later part has it too; what no part
// has measured is na.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"rutter/integration/bench"
)

// keys are those of the last line, in its order.
var keys = []string{"item_p99_ms_200", "roam_lost", "roam_dup", "roam_gap_s", "list_p99_ms", "write_stall_ms"}

// suite is one run.
type suite struct {
	rutter   string // the program
	dir      string
	results  string // the file that keeps values
	duration time.Duration
	values   map[string]string
}

// part measures some of the keys. Those of one surface share a file, as changefeed.go.
type part struct {
	name string
	do   func(context.Context, *suite) error
}

// parts are what is measured; -part names one.
var parts = []part{{"items", runItems}, {"roam", runRoam}, {"idle", runIdle}, {"list", runLists}}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench-triton:", err)
		os.Exit(1)
	}
}

func partNames() string {
	names := "all"
	for _, p := range parts {
		names += ", " + p.name
	}
	return names
}

func run(ctx context.Context) (err error) {
	s := &suite{values: make(map[string]string)}
	only := flag.String("part", "all", "one of "+partNames())
	flag.StringVar(&s.rutter, "rutter", "bin/rutter", "`PROGRAM` to measure")
	flag.StringVar(&s.results, "results", "bin/bench-triton.json", "`FILE` that keeps what was measured, for the parts that are not; of a run of all, nothing older")
	flag.DurationVar(&s.duration, "duration", 10*time.Second, "`TIME` to write in items")
	flag.Parse()
	if err := s.load(*only); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "rutter-bench-triton-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
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
		err = errors.Join(err, s.save())
		fmt.Fprintf(os.Stderr, "%s took %s\n", p.name, time.Since(begin).Round(time.Second))
	}
	if !ran {
		return fmt.Errorf("-part %q: want one of %s", *only, partNames())
	}
	fmt.Println(s.line())
	return err
}

// load takes what earlier runs measured, unless all is measured now.
func (s *suite) load(part string) error {
	b, err := os.ReadFile(s.results)
	if part == "all" || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &s.values); err != nil {
		return fmt.Errorf("%s: %w: remove it", s.results, err)
	}
	return nil
}

func (s *suite) save() error {
	b, err := json.MarshalIndent(s.values, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.results), 0o755); err != nil {
		return err
	}
	return os.WriteFile(s.results, append(b, '\n'), 0o644)
}

func (s *suite) set(key string, value float64) {
	if !slices.Contains(keys, key) {
		panic("bench-triton: unknown key " + key)
	}
	s.values[key] = fmt.Sprintf("%.4g", value)
}

func (s *suite) line() string {
	pairs := make([]string, len(keys))
	for i, key := range keys {
		value, ok := s.values[key]
		if !ok {
			value = "na"
		}
		pairs[i] = key + "=" + value
	}
	return strings.Join(pairs, " ")
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
