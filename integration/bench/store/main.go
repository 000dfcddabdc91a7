// Command store measures the store beside etcd, in one run on one machine, and
// ends with one line of key=value: `make bench-store`. What a part measured is kept
// in a file, so that the line of a later part has it too; what no part has
// measured is na.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"time"

	"rutter/cmd/rutter/bench"
	"rutter/integration/bench/etcd"
	"rutter/integration/bench/figures"
)

// keys are the values that the last line has, in its order.
var keys = []string{
	"append_512_vs_etcd", "append_512_vs_nats", "append_64_vs_etcd", "p50_1_vs_etcd", "p99_512_vs_etcd", "us_per_change", "append_512_boltdb_vs_etcd",
	"replay_vs_etcd_range", "replay_per_s", "failover_p99_ms", "transfer_p99_ms", "restart_10m_s", "longest_pause_ms", "large_log_ratio", "bytes_per_object",
}

// suite is one run.
type suite struct {
	*figures.Figures
	rutter, old       string // programs of ours
	etcd, nats, rival string // programs of rivals
	dir               string
	rounds            int
	seconds           time.Duration
	replay            uint64 // events
	restart           uint64 // events
	objects           uint64
	steady            uint64 // events
	kills             int
	kept              string        // folder of the large log
	fill              time.Duration // how long it may be written at once; 0: until it is whole
	only              string        // contenders, by comma; "": all, and compared
	profiles          string        // folder
	writers           []int         // the levels of load
	running           []func() error
}

// parts are what can be run alone, in the order in which all are run.
func (s *suite) parts() []figures.Part {
	return []figures.Part{
		{Name: "append", Do: s.runAppend},
		{Name: "replay", Do: s.runReplay},
		{Name: "failover", Do: s.runFailover},
		{Name: "restart", Do: s.runRestart},
	}
}

func main() { figures.Main("store", run) }

func run(ctx context.Context) (err error) {
	s := &suite{Figures: figures.NewFigures("store", keys...)}
	flag.StringVar(&s.rutter, "rutter", "bin/rutter", "`PROGRAM` to measure")
	flag.StringVar(&s.etcd, "etcd", "bin/rivals/etcd", "`PROGRAM` of the rival's server")
	flag.StringVar(&s.nats, "nats", "bin/rivals/nats-server", "`PROGRAM` of the other rival's server")
	flag.StringVar(&s.old, "old", "", "an older `PROGRAM` of ours to append beside; the end is an error if it is better by more than a tenth")
	flag.StringVar(&s.rival, "rival", "bin/rivals/rival", "`PROGRAM` that writes to it")
	flag.IntVar(&s.rounds, "rounds", 3, "rounds of appending, ours and the rival in turn")
	flag.DurationVar(&s.seconds, "time", 5*time.Second, "`TIME` of each measurement of appending")
	flag.Uint64Var(&s.replay, "replay", 1_000_000, "`N` events to replay")
	flag.Uint64Var(&s.restart, "restart", 10_000_000, "`N` events before the restart")
	flag.Uint64Var(&s.objects, "objects", 1_000_000, "`N` objects before the restart")
	flag.Uint64Var(&s.steady, "steady", 1_000_000, "`N` events to append to the large log and to a new one, in turns")
	flag.StringVar(&s.kept, "kept", "bin/bench-restart", "`FOLDER` of the log of the restart, kept for the next time")
	flag.DurationVar(&s.fill, "fill", 0, "`TIME` to write that log in, if not all of it at once")
	flag.IntVar(&s.kills, "kills", 20, "`N` kills of the leader, and as many transfers")
	flag.StringVar(&s.only, "only", "", "append with `NAMES` alone, as in boltdb,wal; nothing is compared then")
	flag.StringVar(&s.profiles, "profiles", "", "`FOLDER` for CPU profiles of our servers, and of this program")
	s.writers = []int{1, 64, 512}
	flag.Func("writers", "levels of load by comma, which -only must come with (default 1,64,512)", func(list string) error {
		s.writers = nil
		return json.Unmarshal([]byte("["+list+"]"), &s.writers)
	})
	part := flag.String("part", "all", "one of "+figures.PartNames(s.parts()))
	flag.Parse()
	if s.old != "" {
		s.only = cmp.Or(s.only, "wal,old")
	}
	if s.profiles != "" {
		stop, err := s.profile()
		if err != nil {
			return err
		}
		defer stop()
	}
	if s.dir, err = os.MkdirTemp("", "rutter-bench-store-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	return s.Run(ctx, *part, s.parts())
}

// profile writes a CPU profile of this program until stop is called.
func (s *suite) profile() (stop func(), err error) {
	if err := os.MkdirAll(s.profiles, 0o755); err != nil {
		return nil, err
	}
	file, err := os.Create(filepath.Join(s.profiles, "client.prof"))
	if err != nil {
		return nil, err
	}
	return pprof.StopCPUProfile, pprof.StartCPUProfile(file)
}

// cluster starts servers of ours.
func (s *suite) cluster(ctx context.Context, name string, servers int, flags ...string) (*bench.Cluster, error) {
	return s.clusterOf(ctx, s.rutter, name, servers, flags...)
}

// clusterOf starts servers of a program of ours.
func (s *suite) clusterOf(ctx context.Context, program, name string, servers int, flags ...string) (*bench.Cluster, error) {
	if s.profiles != "" {
		folder := filepath.Join(s.profiles, name)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
		flags = append(flags, "--cpuprofile", folder)
	}
	return bench.StartCluster(ctx, bench.Options{Program: program, Servers: servers, Dir: filepath.Join(s.dir, name), Flags: flags})
}

// rivals starts servers of the rival.
func (s *suite) rivals(ctx context.Context, name string) (*etcd.Cluster, error) {
	return etcd.Start(ctx, s.etcd, filepath.Join(s.dir, name))
}

// eventSize is that of every event, in bytes.
const eventSize = 400

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}
