package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/load"
	"rutter/integration/bench/etcd"
)

// contender is one of those that append in turn.
type contender struct {
	name     string
	servers  sleeper
	measure  func(ctx context.Context, writers int) (load.Outcome, error)
	outcomes map[int][]load.Outcome
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
	return &contender{name: name, servers: c, outcomes: make(map[int][]load.Outcome), measure: func(ctx context.Context, writers int) (load.Outcome, error) {
		return bench.Append(ctx, c, w, bench.Connections, overHTTP, load.Plan{Writers: writers, Duration: s.seconds, Warm: time.Second})
	}}, nil
}

func (s *suite) theirs(e *etcd.Cluster) *contender {
	return &contender{name: "etcd", servers: e, outcomes: make(map[int][]load.Outcome), measure: func(ctx context.Context, writers int) (load.Outcome, error) {
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
	begin := func(name string, flags ...string) error {
		if !s.wants(name) {
			return nil
		}
		cluster, err2 := s.cluster(ctx, name, 3, flags...)
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
	if err := begin("wal"); err != nil {
		return err
	}
	if s.wants("etcd") {
		rival, err := s.rivals(ctx, "etcd")
		if err != nil {
			return err
		}
		s.running = append(s.running, rival.Stop)
		contenders = append(contenders, s.theirs(rival))
	}
	if err := begin("boltdb", "--raft-log=boltdb"); err != nil {
		return err
	}
	if err := s.inTurn(ctx, contenders); err != nil || s.only != "" {
		return err
	}
	of := make(map[string]*contender)
	for _, c := range contenders {
		of[c.name] = c
	}
	s.compare(of["wal"], of["boltdb"], of["etcd"])
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

func (s *suite) compare(stream, bolt, etcd *contender) {
	var longest float64
	for _, outcomes := range [][]load.Outcome{stream.outcomes[64], stream.outcomes[512], bolt.outcomes[64], bolt.outcomes[512]} {
		for _, o := range outcomes {
			longest = max(longest, o.LongestGap)
		}
	}
	fmt.Printf("p99 at 512 writers: %.2f of etcd's, with raft-boltdb %.2f\n", stream.of(512, p99)/etcd.of(512, p99), bolt.of(512, p99)/etcd.of(512, p99))
	fmt.Printf("with raft-boltdb: 64 writers %.2f times etcd, 1 writer's p50 %.2f of etcd's\n", bolt.of(64, rate)/etcd.of(64, rate), bolt.of(1, p50)/etcd.of(1, p50))
	s.Set("append_512_vs_etcd", stream.of(512, rate)/etcd.of(512, rate))
	s.Set("append_64_vs_etcd", stream.of(64, rate)/etcd.of(64, rate))
	s.Set("p50_1_vs_etcd", stream.of(1, p50)/etcd.of(1, p50))
	s.Set("append_512_boltdb_vs_etcd", bolt.of(512, rate)/etcd.of(512, rate))
	s.Set("longest_pause_ms", longest)
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
