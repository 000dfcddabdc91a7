package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "svpbench:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	switch {
	case len(args) == 2 && args[0] == "serve":
		mappings, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		return serve(mappings, os.Stdin, os.Stdout)
	case len(args) > 0:
		return fmt.Errorf("no arguments, please, but for SVPBENCH_ROUNDS in the environment; got %q", args)
	case os.Getenv("SVPBENCH_CORES") == "":
		// Go counts cores when a process starts: begin again on one.
		c := pinned(asksOn, self)
		env := append(os.Environ(), "SVPBENCH_CORES="+strconv.Itoa(cores()))
		return syscall.Exec(c.Path, c.Args, env)
	}
	return bench(self, os.Stdout)
}

// Sizes of the bench.
const (
	few       = 1000
	many      = 1_000_000
	writeRate = 5_000 // changes a second
	rounds    = 9
	slice     = 400 * time.Millisecond // of each measurement in a round
)

// parties are all who are measured.
type parties struct {
	small, large *child
	rival        *redis

	ours, oursMany, echo, redis target
}

func bench(self string, out io.Writer) (err error) {
	p := &parties{}
	defer func() { err = errors.Join(err, p.stop()) }()
	fmt.Fprintf(out, "%d cores; building a state of %d mappings\n", cores(), many)
	if p.rival, err = startRedis(few); err != nil {
		return err
	}
	if p.small, err = startServer(self, few); err != nil {
		return err
	}
	if p.large, err = startServer(self, many); err != nil {
		return err
	}
	p.ours, p.oursMany = svpTarget("svp", p.small.SVP, few), svpTarget("svp, a million", p.large.SVP, many)
	p.echo, p.redis = echoTarget(p.small.Echo, p.ours), redisTarget(p.rival.addr, few)
	found := func(answer []byte) bool { return answer[19] == 0 && answer[43] != 0 } // status OK, an underlay address
	for _, t := range []target{p.ours, p.oursMany} {
		if err := t.check(found); err != nil {
			return err
		}
	}
	if err := p.redis.check(func(answer []byte) bool { return strings.Contains(string(answer), redisValue) }); err != nil {
		return err
	}
	return p.report(out)
}

func (p *parties) stop() error {
	var errs []error
	for _, c := range []*child{p.small, p.large} {
		if c != nil {
			errs = append(errs, c.stop())
		}
	}
	if p.rival != nil {
		errs = append(errs, p.rival.stop())
	}
	return errors.Join(errs...)
}

// shape is connections and requests under way on each.
type shape struct{ conns, pipelined int }

func (s shape) String() string { return fmt.Sprintf("%dx%d", s.conns, s.pipelined) }

// duel measures two targets in turns, each first every other time.
type duel struct {
	shape
	a, b     target
	ofA, ofB []result
}

func newDuel(s shape, a, b target) *duel { return &duel{shape: s, a: a, b: b} }

func (d *duel) round(n int) error {
	measure := func(t target, into *[]result) error {
		r, err := t.measure(d.conns, d.pipelined, slice)
		*into = append(*into, r)
		return err
	}
	if n%2 == 0 {
		return errors.Join(measure(d.a, &d.ofA), measure(d.b, &d.ofB))
	}
	return errors.Join(measure(d.b, &d.ofB), measure(d.a, &d.ofA))
}

// ratio is the median of the rounds' ratios of a to b.
func (d *duel) ratio(of func(result) float64) float64 {
	ratios := make([]float64, len(d.ofA))
	for i := range ratios {
		ratios[i] = of(d.ofA[i]) / of(d.ofB[i])
	}
	return median(ratios)
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

func each(results []result, of func(result) float64) float64 {
	x := make([]float64, len(results))
	for i, r := range results {
		x[i] = of(r)
	}
	return median(x)
}

func rate(r result) float64 { return r.perSecond }
func p50(r result) float64  { return float64(r.p50) }
func p99(r result) float64  { return float64(r.p99) }

// numbers are the measurements that the last line is made of.
type numbers struct {
	echo, redis1x1, redis1x64, redis4x16, wide, million, writes *duel

	allocs  float64
	changes float64 // a second, as they were applied
}

func (p *parties) report(out io.Writer) error {
	n := &numbers{
		echo:      newDuel(shape{1, 1}, p.ours, p.echo),
		redis1x1:  newDuel(shape{1, 1}, p.ours, p.redis),
		redis1x64: newDuel(shape{1, 64}, p.ours, p.redis),
		redis4x16: newDuel(shape{4, 16}, p.ours, p.redis),
		wide:      newDuel(shape{4, 64}, p.ours, p.redis),
		million:   newDuel(shape{1, 64}, p.oursMany, p.ours),
		writes:    newDuel(shape{1, 64}, p.oursMany, p.oursMany),
	}
	duels := []*duel{n.echo, n.redis1x1, n.redis1x64, n.redis4x16, n.wide, n.million}
	for round := range rounds {
		for _, d := range duels {
			if err := d.round(round); err != nil {
				return err
			}
		}
	}
	if err := p.underWrites(n); err != nil {
		return err
	}
	if err := p.allocations(n); err != nil {
		return err
	}
	fmt.Fprintf(out, "%-6s %-16s %-12s %12s %12s %8s\n", "shape", "a", "b", "a per s", "b per s", "a/b")
	for _, d := range append(duels, n.writes) {
		b := d.b.name
		if d == n.writes {
			b = "the same, idle"
		}
		fmt.Fprintf(out, "%-6s %-16s %-12s %12.0f %12.0f %8.2f\n", d.shape, d.a.name, b, each(d.ofA, rate), each(d.ofB, rate), d.ratio(rate))
	}
	fmt.Fprintf(out, "1x1 p50: svp %s, echo %s\n", time.Duration(each(n.echo.ofA, p50)), time.Duration(each(n.echo.ofB, p50)))
	fmt.Fprintf(out, "under %.0f changes/s, 1x64 of a million: p99 of a batch %s, idle %s\n",
		n.changes, time.Duration(each(n.writes.ofA, p99)), time.Duration(each(n.writes.ofB, p99)))
	fmt.Fprintf(out, "bytes for each of %d mappings: %.0f in the state, %.0f more in the copy that answers\n", many, p.large.BytesPerMapping, p.large.Copied)
	news, err := newsAfterRestart()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "p50_1x1_vs_echo=%.2f vs_redis_1x1=%.2f vs_redis_1x64=%.2f vs_redis_4x16=%.2f vs_redis_4x64=%.2f per_s_4x64=%.0f million_vs_thousand=%.2f under_writes_ratio=%.2f allocs_per_lookup=%.4f bytes_per_mapping=%.0f news_after_restart_s=%.1f\n",
		n.echo.ratio(p50), n.redis1x1.ratio(rate), n.redis1x64.ratio(rate), n.redis4x16.ratio(rate), n.wide.ratio(rate), each(n.wide.ofA, rate),
		n.million.ratio(rate), n.writes.ratio(rate), n.allocs, p.large.BytesPerMapping, news.Seconds())
	return nil
}

// underWrites measures the large server in turns with and without changes
// being applied to it.
func (p *parties) underWrites(n *numbers) error {
	d := n.writes
	var changes uint64
	var busy time.Duration
	for range rounds {
		before, err := p.large.command("writes " + strconv.Itoa(writeRate))
		if err != nil {
			return err
		}
		began := time.Now()
		r, err := d.a.measure(d.conns, d.pipelined, slice)
		if err != nil {
			return err
		}
		d.ofA = append(d.ofA, r)
		busy += time.Since(began)
		after, err := p.large.command("writes 0")
		if err != nil {
			return err
		}
		changes += after.Changes - before.Changes
		if r, err = d.b.measure(d.conns, d.pipelined, slice); err != nil {
			return err
		}
		d.ofB = append(d.ofB, r)
	}
	n.changes = float64(changes) / busy.Seconds()
	return nil
}

// allocations counts those of the whole small server while it is asked.
func (p *parties) allocations(n *numbers) error {
	before, err := p.small.command("counts")
	if err != nil {
		return err
	}
	if _, err := p.ours.measure(4, 64, time.Second); err != nil {
		return err
	}
	after, err := p.small.command("counts")
	if err != nil {
		return err
	}
	n.allocs = float64(after.Mallocs-before.Mallocs) / float64(after.Lookups-before.Lookups)
	return nil
}
