// Command feed measures the feed of compute nodes beside etcd's watch, in one run
// on one machine, and ends with one line of key=value: see `make bench-feed`.
// What cannot be measured here, such as etcd without its program, is na. What a
// part measured is kept in a file, so that the line of a later part has it too.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/agentsim"
	"rutter/integration/bench/figures"
)

// keys are those of the last line, in its order.
var keys = []string{
	"fan200_p99_ms", "fan200_p99_vs_etcd", "cpu_us_per_delivery", "cpu_vs_etcd", "fan1000_p99_ms",
	"bytes_per_idle_subscriber", "storm_10k_s", "storm_snapshots", "scan_per_s", "catchup_per_s", "barrier100_p99_ms",
}

// suite is one run.
type suite struct {
	*figures.Figures
	rutter, etcd, rival string // programs
	dir                 string
	fanTime             time.Duration
	profiles            string // the folder for CPU profiles of the servers; "": none
}

// parts are what is measured, each on a fresh cluster.
func (s *suite) parts() []figures.Part {
	return []figures.Part{
		{Name: "fan200", Do: s.fan200},
		{Name: "fan1000", Do: s.fan1000},
		{Name: "fansaturated", Do: s.fanSaturated},
		{Name: "barrier", Do: s.barrier},
		{Name: "storm", Do: s.storm},
		{Name: "stormcold", Do: s.stormCold},
		{Name: "catchup", Do: s.catchUp},
	}
}

func main() { figures.Main("feed", run) }

func run(ctx context.Context) (err error) {
	s := &suite{Figures: figures.NewFigures("feed", keys...)}
	only := flag.String("part", "all", "one of "+figures.PartNames(s.parts()))
	flag.StringVar(&s.rutter, "rutter", "bin/rutter", "`PROGRAM` to measure")
	flag.StringVar(&s.etcd, "etcd", "bin/rivals/etcd", "`PROGRAM` of the rival's server")
	flag.StringVar(&s.rival, "rival", "bin/rivals/rival", "`PROGRAM` that measures the rival")
	flag.StringVar(&s.profiles, "cpuprofile", "", "`FOLDER` for CPU profiles of the servers")
	flag.DurationVar(&s.fanTime, "duration", 10*time.Second, "`TIME` to write in fan")
	flag.Parse()
	if s.dir, err = os.MkdirTemp("", "rutter-bench-feed-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	return s.Run(ctx, *only, s.parts())
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
func with(ctx context.Context, c *bench.Cluster, cfg agentsim.Config, fn func(*agentsim.Scenario) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cfg.Dialer, cfg.Servers = c.Client, c.Client.Servers()
	return bench.Streams(ctx, c, 4, func(submit []bench.Submit) error {
		stage := &agentsim.Scenario{Cluster: c, Fleet: agentsim.New(cfg), Submit: submit[0]}
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
