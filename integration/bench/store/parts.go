package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/agentsim"
	"rutter/cmd/rutter/bench/load"
	"rutter/integration/bench/nats"
)

// contender is one of those that append in turn.
type contender struct {
	name     string
	servers  sleeper
	measure  func(ctx context.Context, writers int) (load.Outcome, error)
	outcomes map[int][]load.Outcome
	used     map[int][]float64 // us of CPU for a change, of servers and client; not of rivals
}

// sleeper is a cluster that takes no time while it rests.
type sleeper interface {
	Rest() error
	Wake(ctx context.Context) error
}

// ours returns a contender of ours.
func (s *suite) ours(name string, c *bench.Cluster, overHTTP bool) (*contender, error) {
	w, err := bench.NewWorkload(eventSize)
	if err != nil {
		return nil, err
	}
	of := &contender{name: name, servers: c, outcomes: make(map[int][]load.Outcome), used: make(map[int][]float64)}
	of.measure = func(ctx context.Context, writers int) (load.Outcome, error) {
		var warmed atomic.Int64 // ns of CPU until what is measured began
		warming := time.AfterFunc(warm, func() { warmed.Store(int64(processorTime(c))) })
		defer warming.Stop()
		o, err := bench.Append(ctx, c, w, bench.Connections, overHTTP, load.Plan{Writers: writers, Duration: s.seconds, Warm: warm})
		used := processorTime(c) - time.Duration(warmed.Load())
		of.used[writers] = append(of.used[writers], float64(used.Microseconds())/max(float64(o.Count), 1))
		return o, err
	}
	return of, nil
}

// warm is how long ours append before they are measured.
const warm = time.Second

// processorTime is that of the servers and of this program, which is their client, so far.
func processorTime(c *bench.Cluster) time.Duration {
	used := agentsim.CPU(os.Getpid())
	for _, server := range c.Servers {
		used += agentsim.CPU(server.PID())
	}
	return used
}

// rival is a cluster of another product.
type rival interface {
	sleeper
	Measure(ctx context.Context, client string, args ...string) (load.Outcome, error)
}

func (s *suite) theirs(name string, e rival) *contender {
	return &contender{name: name, servers: e, outcomes: make(map[int][]load.Outcome), measure: func(ctx context.Context, writers int) (load.Outcome, error) {
		return e.Measure(ctx, s.rival, "-what", "append", "-writers", strconv.Itoa(writers), "-duration", s.seconds.String(), "-size", strconv.Itoa(eventSize))
	}}
}

// wants reports whether a contender takes part.
func (s *suite) wants(name string) bool {
	return s.only == "" || slices.Contains(strings.Split(s.only, ","), name)
}

// runAppend appends with each contender in turn.
func (s *suite) runAppend(ctx context.Context) (err error) {
	var contenders []*contender
	begin := func(name, program string, flags ...string) error {
		if !s.wants(name) {
			return nil
		}
		cluster, err2 := s.clusterOf(ctx, program, name, 3, flags...)
		if err2 != nil {
			return err2
		}
		s.running = append(s.running, cluster.Stop)
		stream, err2 := s.ours(name, cluster, false)
		if err2 != nil {
			return err2
		}
		contenders = append(contenders, stream)
		if name != "wal" || !s.wants("json") {
			return nil
		}
		overHTTP, err2 := s.ours("json", cluster, true)
		contenders = append(contenders, overHTTP)
		return err2
	}
	defer func() { err = errors.Join(err, s.stopAll()) }()
	if err := begin("wal", s.rutter); err != nil {
		return err
	}
	if s.old != "" {
		if err := begin("old", s.old); err != nil {
			return err
		}
	}
	if s.wants("etcd") {
		rival, err := s.rivals(ctx, "etcd")
		if err != nil {
			return err
		}
		s.running = append(s.running, rival.Stop)
		contenders = append(contenders, s.theirs("etcd", rival))
	}
	if s.wants("nats") {
		rival, err := nats.Start(s.nats, filepath.Join(s.dir, "nats"))
		if err != nil {
			return err
		}
		s.running = append(s.running, rival.Stop)
		contenders = append(contenders, s.theirs("nats", rival))
	}
	if err := begin("boltdb", s.rutter, "--raft-log=boltdb"); err != nil {
		return err
	}
	if err := s.inTurn(ctx, contenders); err != nil {
		return err
	}
	of := make(map[string]*contender)
	for _, c := range contenders {
		of[c.name] = c
	}
	switch {
	case s.old != "":
		return notWorse(of["wal"], of["old"])
	case s.only == "":
		s.compare(of["wal"], of["boltdb"], of["etcd"], of["nats"])
	}
	return nil
}

// stopAll ends what runAppend started.
func (s *suite) stopAll() error {
	var errs []error
	for _, stop := range s.running {
		errs = append(errs, stop())
	}
	s.running = nil
	return errors.Join(errs...)
}

// alone measures one contender while the others rest: nine servers that only
// tell each other that they live take a fifth of two cores.
func (c *contender) alone(ctx context.Context, writers int) (o load.Outcome, err error) {
	if err := c.servers.Wake(ctx); err != nil {
		return o, err
	}
	time.Sleep(between)
	o, err = c.measure(ctx, writers)
	return o, errors.Join(err, c.servers.Rest())
}

// between is a rest before each measurement, so that what another, or an
// election, leaves behind is not on its account.
const between = time.Second

func (s *suite) inTurn(ctx context.Context, contenders []*contender) error {
	fmt.Printf("%-18s %7s %10s %8s %8s %8s %8s %10s\n", "", "writers", "per second", "p50 ms", "p90 ms", "p99 ms", "max ms", "longest gap")
	for _, c := range contenders {
		if err := c.servers.Rest(); err != nil {
			return err
		}
	}
	for round := range s.rounds {
		for _, n := range s.writers {
			// Each round another begins: what one leaves in the page cache and on
			// the disk falls on different ones.
			for i := range contenders {
				c := contenders[(round+i)%len(contenders)]
				o, err := c.alone(ctx, n)
				if err != nil {
					return fmt.Errorf("%s, %d writers: %w", c.name, n, err)
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if o.Errors > 0 {
					return fmt.Errorf("%s, %d writers: %d errors: %s", c.name, n, o.Errors, o.FirstError)
				}
				c.outcomes[n] = append(c.outcomes[n], o)
				fmt.Printf("%-18s %7d %10.0f %8.2f %8.2f %8.2f %8.2f %10.2f   round %d\n", c.name, n, o.PerSecond, o.P50, o.P90, o.P99, o.Max, o.LongestGap, round+1)
			}
		}
	}
	return nil
}

// of returns the median over the rounds.
func (c *contender) of(writers int, value func(load.Outcome) float64) float64 {
	var all []float64
	for _, o := range c.outcomes[writers] {
		all = append(all, value(o))
	}
	return median(all)
}

func rate(o load.Outcome) float64 { return o.PerSecond }
func p50(o load.Outcome) float64  { return o.P50 }
func p99(o load.Outcome) float64  { return o.P99 }

func (s *suite) compare(stream, bolt, etcd, nats *contender) {
	var longest float64
	for _, outcomes := range [][]load.Outcome{stream.outcomes[64], stream.outcomes[512]} {
		for _, o := range outcomes {
			longest = max(longest, o.LongestGap)
		}
	}
	fmt.Printf("p99 at 512 writers: %.2f of etcd's, with raft-boltdb %.2f\n", stream.of(512, p99)/etcd.of(512, p99), bolt.of(512, p99)/etcd.of(512, p99))
	fmt.Printf("beside NATS: %.2f, %.2f and %.2f times its rate at 1, 64 and 512 writers\n", stream.of(1, rate)/nats.of(1, rate), stream.of(64, rate)/nats.of(64, rate), stream.of(512, rate)/nats.of(512, rate))
	fmt.Printf("CPU for a change, servers and client: %.0f us at 64 writers, %.0f at 512\n", median(stream.used[64]), median(stream.used[512]))
	fmt.Printf("with raft-boltdb: 64 writers %.2f times etcd, 1 writer's p50 %.2f of etcd's\n", bolt.of(64, rate)/etcd.of(64, rate), bolt.of(1, p50)/etcd.of(1, p50))
	s.Set("append_512_vs_etcd", stream.of(512, rate)/etcd.of(512, rate))
	s.Set("append_512_vs_nats", stream.of(512, rate)/nats.of(512, rate))
	s.Set("append_64_vs_etcd", stream.of(64, rate)/etcd.of(64, rate))
	s.Set("p50_1_vs_etcd", stream.of(1, p50)/etcd.of(1, p50))
	s.Set("append_512_boltdb_vs_etcd", bolt.of(512, rate)/etcd.of(512, rate))
	s.Set("p99_512_vs_etcd", stream.of(512, p99)/etcd.of(512, p99))
	s.Set("us_per_change", median(stream.used[512]))
	s.Set("longest_pause_ms", longest)
}

// worse is by how much a program may be worse than the older one: the machines are noisy.
const worse = 1.1

// notWorse compares a program with an older one. The error names each figure that is worse
// by more than a tenth.
func notWorse(is, was *contender) (err error) {
	rates := func(c *contender, n int) float64 { return 1 / c.of(n, rate) }
	latencies := func(value func(load.Outcome) float64) func(*contender, int) float64 {
		return func(c *contender, n int) float64 { return c.of(n, value) }
	}
	for _, f := range []struct {
		what    string
		writers int
		cost    func(*contender, int) float64 // less is better
	}{
		{"time for a change", 1, latencies(p50)},
		{"rate", 64, rates},
		{"rate", 512, rates},
		{"p99", 512, latencies(p99)},
		{"CPU for a change", 512, func(c *contender, n int) float64 { return median(c.used[n]) }},
	} {
		times := f.cost(is, f.writers) / f.cost(was, f.writers)
		fmt.Printf("%-18s %4d writers: it costs %.2f times what it did\n", f.what, f.writers, times)
		if times > worse {
			err = errors.Join(err, fmt.Errorf("%s at %d writers: %.2f times what it was, want at most %.1f", f.what, f.writers, times, worse))
		}
	}
	return err
}

func say(what string) func(uint64) {
	begin := time.Now()
	return func(done uint64) {
		fmt.Fprintf(os.Stderr, "%s: %d after %.0f s\n", what, done, time.Since(begin).Seconds())
	}
}

// runReplay reads the same number of events from a server of ours and from the
// rival, in turn.
func (s *suite) runReplay(ctx context.Context) (err error) {
	w, err := bench.NewWorkload(eventSize)
	if err != nil {
		return err
	}
	c, err := s.cluster(ctx, "replay", 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if _, _, err := bench.Fill(ctx, c, w, s.replay, s.objects, say("written")); err != nil {
		return err
	}
	rival, err := s.rivals(ctx, "etcd-replay")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rival.Stop()) }()
	count := strconv.FormatUint(s.replay, 10)
	if _, err := rival.Measure(ctx, s.rival, "-what", "fill", "-count", count, "-size", strconv.Itoa(eventSize)); err != nil {
		return err
	}
	var ours, theirs []float64
	for range s.rounds {
		mine, err := bench.Replay(ctx, c, 0, s.replay, say("replayed"))
		if err != nil {
			return err
		}
		other, err := rival.Measure(ctx, s.rival, "-what", "range", "-count", count)
		if err != nil {
			return err
		}
		fmt.Printf("replay of %d: rutter %.0f/s, etcd's range read %.0f/s\n", mine.Events, mine.PerSecond, other.PerSecond)
		ours, theirs = append(ours, mine.PerSecond), append(theirs, other.PerSecond)
	}
	watched, err := rival.Measure(ctx, s.rival, "-what", "watch", "-count", strconv.FormatUint(min(s.replay, 100_000), 10))
	if err != nil {
		return err
	}
	fmt.Printf("etcd's watch from the first revision: %.0f/s; rutter is %.0f times that\n", watched.PerSecond, median(ours)/watched.PerSecond)
	s.Set("replay_per_s", median(ours))
	s.Set("replay_vs_etcd_range", median(ours)/median(theirs))
	return nil
}

func (s *suite) runFailover(ctx context.Context) (err error) {
	w, err := bench.NewWorkload(eventSize)
	if err != nil {
		return err
	}
	c, err := s.cluster(ctx, "failover", 3)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	told := func(what string) func(int, time.Duration) {
		return func(i int, gap time.Duration) {
			fmt.Fprintf(os.Stderr, "%s %d of %d: %.1f ms\n", what, i, s.kills, load.Millis(gap))
		}
	}
	kills, err := bench.Failover(ctx, c, w, s.kills, told("kill"))
	if err != nil {
		return err
	}
	transfers, err := bench.Transfer(ctx, c, w, s.kills, told("transfer"))
	if err != nil {
		return err
	}
	fmt.Printf("SIGKILL of the leader, %d times: p50 %.0f ms, p99 %.0f ms, %d lost\n", len(kills.Gaps), kills.P50, kills.P99, kills.Lost)
	fmt.Printf("planned transfer, %d times: p50 %.1f ms, p99 %.1f ms, %d lost\n", len(transfers.Gaps), transfers.P50, transfers.P99, transfers.Lost)
	s.Set("failover_p99_ms", kills.P99)
	s.Set("transfer_p99_ms", transfers.P99)
	return nil
}
