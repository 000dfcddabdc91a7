// Command bulk measures how fast many changes are written, and many entries printed, in
// one run: appending by 512 writers, a replay of updates and one of mixed kinds into the
// same cluster, in turn, and `rutter log show -o ndjson`. It ends with one line of
// key=value: see `make bench-bulk`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/load"
	"rutter/integration/bench/figures"
	"rutter/integration/bench/madelog"
)

// keys are the values that the last line has, in its order.
var keys = []string{"replay_updates_vs_append_512", "replay_mixed_vs_append_512", "show_ndjson_per_s", "show_ndjson_vs_old"}

// oldShow is how many entries `rutter log show -o ndjson` printed in a second before
// servers' lines were passed on, for a run without a program of then.
const oldShow = 4000

// suite is one run.
type suite struct {
	*figures.Figures
	rutter, old string // programs
	dir         string
	rounds      int
	seconds     time.Duration
	changes     int // of each replay
	shown       int // entries
	cluster     *bench.Cluster
}

func main() { figures.Main("bulk", run) }

func run(ctx context.Context) (err error) {
	s := &suite{Figures: figures.NewFigures("bulk", keys...)}
	flag.StringVar(&s.rutter, "rutter", "bin/rutter", "`PROGRAM` to measure")
	flag.StringVar(&s.old, "old", "", "an older `PROGRAM` whose log show is measured beside it")
	flag.IntVar(&s.rounds, "rounds", 3, "rounds, of which the medians are taken")
	flag.DurationVar(&s.seconds, "time", 4*time.Second, "`TIME` of each measurement of appending")
	flag.IntVar(&s.changes, "changes", 30_000, "`N` changes of each replay")
	flag.IntVar(&s.shown, "shown", 50_000, "`N` entries that are printed")
	parts := []figures.Part{{Name: "replay", Do: s.replay}, {Name: "show", Do: s.show}}
	part := flag.String("part", "all", "one of "+figures.PartNames(parts))
	flag.Parse()
	if s.dir, err = os.MkdirTemp("", "rutter-bench-bulk-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	if s.cluster, err = bench.StartCluster(ctx, bench.Options{Program: s.rutter, Servers: 3, Dir: filepath.Join(s.dir, "servers")}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cluster.Stop()) }()
	return s.Run(ctx, *part, parts)
}

// mixedRound is added to the round of mixed logs, whose objects are others.
const mixedRound = 100

// eventSize is that of the events that are appended, in bytes.
const eventSize = 400

// replay measures the three ways of writing in turn. Each ratio is of one round, whose
// parts the same load of the machine slows down.
func (s *suite) replay(ctx context.Context) error {
	w, err := bench.NewWorkload(eventSize)
	if err != nil {
		return err
	}
	var updates, mixed []float64
	for round := range s.rounds {
		append512, err := bench.Append(ctx, s.cluster, w, bench.Connections, false, load.Plan{Writers: 512, Duration: s.seconds, Warm: time.Second})
		if err != nil {
			return err
		}
		u, err := s.measure(ctx, fmt.Sprintf("updates%d", round), madelog.Updates, byte(round))
		if err != nil {
			return err
		}
		m, err := s.measure(ctx, fmt.Sprintf("mixed%d", round), madelog.Mixed, byte(mixedRound+round))
		if err != nil {
			return err
		}
		fmt.Printf("round %d: append_512 %.0f/s, replay of updates %.0f/s, of mixed kinds %.0f/s\n", round+1, append512.PerSecond, u, m)
		updates, mixed = append(updates, u/append512.PerSecond), append(mixed, m/append512.PerSecond)
	}
	s.Set("replay_updates_vs_append_512", median(updates))
	s.Set("replay_mixed_vs_append_512", median(mixed))
	return nil
}

// measure makes a log, replays it into the cluster, and returns the changes in a second:
// of the whole command, from its start to its end.
func (s *suite) measure(ctx context.Context, name string, fill madelog.Fill, round byte) (perSecond float64, err error) {
	dir := filepath.Join(s.dir, name)
	changes, _, err := madelog.Make(dir, fill, round, s.changes)
	if err != nil {
		return 0, err
	}
	var urls []string
	for _, server := range s.cluster.Servers {
		urls = append(urls, server.URL)
	}
	cmd := exec.CommandContext(ctx, s.rutter, "log", "replay", dir, "--to", strings.Join(urls, ","), "--map", dir+".map")
	begun := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("replay of %s: %w: %s", name, err, out)
	}
	return float64(changes) / time.Since(begun).Seconds(), nil
}

// show measures the printing of entries by this program and by an older one, in turn.
func (s *suite) show(ctx context.Context) error {
	w, err := bench.NewWorkload(eventSize)
	if err != nil {
		return err
	}
	if _, _, err := bench.Fill(ctx, s.cluster, w, uint64(s.shown), uint64(s.shown)/4, func(uint64) {}); err != nil {
		return err
	}
	var rates, ratios []float64
	for round := range s.rounds {
		rate, err := s.shows(ctx, s.rutter)
		if err != nil {
			return err
		}
		old := float64(oldShow)
		if s.old != "" {
			if old, err = s.shows(ctx, s.old); err != nil {
				return err
			}
		}
		fmt.Printf("round %d: log show -o ndjson prints %.0f/s, the older program %.0f/s\n", round+1, rate, old)
		rates, ratios = append(rates, rate), append(ratios, rate/old)
	}
	s.Set("show_ndjson_per_s", median(rates))
	s.Set("show_ndjson_vs_old", median(ratios))
	return nil
}

// shows returns how many of the first entries a program prints in a second.
func (s *suite) shows(ctx context.Context, program string) (perSecond float64, err error) {
	cmd := exec.CommandContext(ctx, program, "log", "show", "-o", "ndjson", "--after", "0", "--limit", strconv.Itoa(s.shown), "-s", s.cluster.Servers[0].URL)
	var lines lineCounter
	cmd.Stdout, cmd.Stderr = &lines, os.Stderr
	begun := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, err
	}
	if int(lines) != s.shown {
		return 0, fmt.Errorf("log show printed %d lines, want %d", lines, s.shown)
	}
	return float64(lines) / time.Since(begun).Seconds(), nil
}

// lineCounter counts the lines that are written to it.
type lineCounter int

// Write implements io.Writer.
func (n *lineCounter) Write(b []byte) (int, error) {
	*n += lineCounter(strings.Count(string(b), "\n"))
	return len(b), nil
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
