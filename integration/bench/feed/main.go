// Command feed measures the feed of compute nodes beside etcd's watch, in one run
// on one machine, and ends with one line of key=value: see `make bench-feed`.
// What cannot be measured here, such as etcd without its program, is na. What a
// part measured is kept in a file, so that the line of a later part has it too.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"rutter/integration/agentsim"
	"rutter/integration/bench"
)

// keys are those of the last line, in its order.
var keys = []string{
	"fan200_p99_ms", "fan200_p99_vs_etcd", "cpu_us_per_delivery", "cpu_vs_etcd", "fan1000_p99_ms",
	"bytes_per_idle_subscriber", "storm_10k_s", "storm_snapshots", "scan_per_s", "catchup_per_s", "barrier100_p99_ms",
}

// suite is one run.
type suite struct {
	rutter, etcd, rival string // programs
	dir                 string
	results             string // the file that keeps values
	fanTime             time.Duration
	profiles            string // the folder for CPU profiles of the servers; "": none
	values              map[string]string
}

// part measures some of the keys on a fresh cluster.
type part struct {
	name string
	do   func(context.Context, *suite) error
}

// parts are what is measured; -part names one, or how several begin.
var parts = []part{{"fan200", runFan200}, {"fan1000", runFan1000}, {"fansaturated", runFanSaturated}, {"barrier", runBarrier}, {"storm", runStorm}, {"stormcold", runStormCold}, {"catchup", runCatchUp}}

const partNames = "all, fan, fan200, fan1000, fansaturated, barrier, storm, stormcold or catchup"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench-feed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	s := &suite{values: make(map[string]string)}
	only := flag.String("part", "all", partNames)
	flag.StringVar(&s.rutter, "rutter", "bin/rutter", "`PROGRAM` to measure")
	flag.StringVar(&s.etcd, "etcd", "bin/rivals/etcd", "`PROGRAM` of the rival's server")
	flag.StringVar(&s.rival, "rival", "bin/rivals/rival", "`PROGRAM` that measures the rival")
	flag.StringVar(&s.results, "results", "bin/bench-feed.json", "`FILE` that keeps what was measured, for the parts that are not; of a run of all, nothing older")
	flag.StringVar(&s.profiles, "cpuprofile", "", "`FOLDER` for CPU profiles of the servers")
	flag.DurationVar(&s.fanTime, "duration", 10*time.Second, "`TIME` to write in fan")
	flag.Parse()
	if err := s.load(*only); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "rutter-bench-feed-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	ran := false
	for _, p := range parts {
		if *only != "all" && (*only == "" || !strings.HasPrefix(p.name, *only)) {
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
		return fmt.Errorf("-part %q: want %s", *only, partNames)
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
		panic("bench-feed: unknown key " + key)
	}
	s.values[key] = fmt.Sprintf("%.4g", value)
	if value >= 1000 {
		s.values[key] = fmt.Sprintf("%.0f", value)
	}
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
	flags := []string{"--log-level=error"}
	if s.profiles != "" {
		flags = append(flags, "--cpuprofile="+s.profiles)
	}
	c, err := bench.StartCluster(ctx, bench.Options{Program: s.rutter, Servers: 3, Dir: filepath.Join(s.dir, name), Flags: flags})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop(), os.RemoveAll(filepath.Join(s.dir, name))) }()
	return fn(c)
}

// with runs fn with a fleet on the cluster, all of it live.
func with(ctx context.Context, c *bench.Cluster, cfg agentsim.Config, fn func(*agentsim.Stage) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cfg.Dialer, cfg.Servers = c.Client, c.Client.Servers()
	return bench.Streams(ctx, c, 4, func(submit []bench.Submit) error {
		stage := &agentsim.Stage{Cluster: c, Fleet: agentsim.New(cfg), Submit: submit[0]}
		if err := stage.Prepare(ctx); err != nil {
			return err
		}
		running := make(chan struct{})
		go func() { defer close(running); stage.Fleet.Run(ctx) }()
		defer func() { cancel(); <-running }()
		patience, end := context.WithTimeout(ctx, 2*time.Minute)
		defer end()
		if err := stage.Fleet.AwaitLive(patience, cfg.Agents); err != nil {
			return fmt.Errorf("%d of %d agents are live: %w", stage.Fleet.Counts().Live, cfg.Agents, err)
		}
		return fn(stage)
	})
}

func even(i int) int { return i }

// hasRival reports whether etcd can be measured.
func (s *suite) hasRival() bool {
	for _, program := range []string{s.etcd, s.rival} {
		if _, err := exec.LookPath(program); err != nil {
			fmt.Fprintf(os.Stderr, "no %s: what is compared with etcd is na (make rivals)\n", program)
			return false
		}
	}
	return true
}
