package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/load"
)

// fillAtOnce is how many events are written between two looks at the clock.
const fillAtOnce = 250_000

// runRestart restarts a server with a large log, and looks at its memory and at
// how fast it appends. The log is built once, and kept for the next time.
func (s *suite) runRestart(ctx context.Context) (err error) {
	c, err := s.cluster(ctx, "empty", 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	bytes, err := resident(c.Servers[0].PID())
	if err != nil {
		return err
	}
	small, err := newAppended("new log", c, min(s.objects, smallObjects))
	if err != nil {
		return err
	}
	if _, _, err := bench.Fill(ctx, c, small.workload, small.objects, small.objects, func(uint64) {}); err != nil {
		return err
	}
	small.workload.ContinueUpdates(small.objects)
	if err := c.Rest(); err != nil {
		return err
	}
	large, err := s.restartLarge(ctx, bytes)
	if large == nil || err != nil {
		return err
	}
	defer func() { err = errors.Join(err, large.cluster.Stop()) }()
	return s.appendInTurn(ctx, small, large)
}

// restartLarge starts a server with the kept log, kills it, and starts it again;
// nil if the log is not whole yet. An empty server has so many bytes resident.
func (s *suite) restartLarge(ctx context.Context, empty int64) (_ *appended, err error) {
	c, err := bench.StartCluster(ctx, bench.Options{Program: s.rutter, Servers: 1, Dir: s.kept})
	if err != nil {
		return nil, err
	}
	var a *appended
	defer func() {
		if a == nil || err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	server := c.Servers[0]
	head, err := s.fillUp(ctx, c)
	if err != nil || head < s.restart {
		return nil, err
	}
	if err := server.Stop(syscall.SIGKILL); err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := server.Start(); err != nil {
		return nil, err
	}
	if err := c.AwaitReady(ctx, server); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	serving, err := resident(server.PID())
	if err != nil {
		return nil, err
	}
	status, err := c.Client.StatusOf(ctx, server.URL)
	if err != nil {
		return nil, err
	}
	objects := 0
	for _, n := range status.Objects {
		objects += n
	}
	each := float64(serving-empty) / float64(objects)
	fmt.Printf("%d events, %d objects: restart to serving %.2f s, %d MiB resident, %.0f bytes an object\n", head, objects, took.Seconds(), serving>>20, each)
	s.Set("restart_10m_s", took.Seconds())
	s.Set("bytes_per_object", each)
	if a, err = newAppended("large log", c, s.objects); err == nil {
		a.workload.ContinueUpdates(head)
	}
	return a, err
}

// smallObjects is how many objects a new log begins with: changes update them, so
// that the large log does not have more objects each time.
const smallObjects = 100_000

// appended is a server that is appended to in its turns.
type appended struct {
	name     string
	cluster  *bench.Cluster
	workload *bench.Workload
	objects  uint64

	count   uint64  // of all turns
	seconds float64 // the same
}

// newAppended returns one with the workload that the kept log is made of.
func newAppended(name string, c *bench.Cluster, objects uint64) (*appended, error) {
	w, err := bench.NewWorkload(eventSize)
	if err != nil {
		return nil, err
	}
	return &appended{name: name, cluster: c, workload: w.SetSpace(), objects: objects}, nil
}

// turn appends with 64 writers to one server while the other rests.
func (s *suite) turn(ctx context.Context, a *appended) error {
	if err := a.cluster.Wake(ctx); err != nil {
		return err
	}
	o, err := bench.Update(ctx, a.cluster, a.workload, a.objects, load.Plan{Writers: 64, Duration: s.seconds, Warm: time.Second})
	if err == nil && o.Errors > 0 {
		err = errors.New(o.FirstError)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	a.count += o.Count
	a.seconds += o.Seconds
	fmt.Fprintf(os.Stderr, "%s: %.0f/s, %d appended\n", a.name, o.PerSecond, a.count)
	return a.cluster.Rest()
}

// appendInTurn compares appending to a small and a large log: straight after the
// start of the large one, and over so many events of each that both have swept
// and collected as often as they do.
func (s *suite) appendInTurn(ctx context.Context, small, large *appended) error {
	ratio := func() float64 {
		return float64(large.count) / large.seconds / (float64(small.count) / small.seconds)
	}
	pair := []*appended{large, small}
	for round := 0; min(small.count, large.count) < s.steady; round++ {
		for i := range pair {
			if err := s.turn(ctx, pair[(round+i)%2]); err != nil {
				return err
			}
		}
		if round == 0 {
			fmt.Printf("64 writers straight after the start: %.0f/s, %.2f of a new log's\n", float64(large.count)/large.seconds, ratio())
		}
	}
	fmt.Printf("64 writers, %d events: %.0f/s, %.2f of a new log's\n", large.count, float64(large.count)/large.seconds, ratio())
	s.Set("large_log_ratio", ratio())
	return nil
}

// fillUp writes what the kept log lacks, for as long as -fill says, and returns
// its head.
func (s *suite) fillUp(ctx context.Context, c *bench.Cluster) (head uint64, err error) {
	w, err := bench.NewWorkload(eventSize)
	if err != nil {
		return 0, err
	}
	w.SetSpace()
	quiet := func(uint64) {}
	for begin := time.Now(); ; {
		status, err := c.Client.StatusOf(ctx, c.Servers[0].URL)
		if err != nil {
			return 0, err
		}
		head = uint64(status.Head.Seq)
		if head >= s.restart || s.fill > 0 && time.Since(begin) > s.fill {
			break
		}
		created, updated, err := bench.FillOn(ctx, c, w, head, min(s.restart, head+fillAtOnce), s.objects, quiet)
		if err != nil {
			return head, err
		}
		rate := created.PerSecond
		if updated.Count > 0 {
			rate = updated.PerSecond
		}
		fmt.Fprintf(os.Stderr, "%d of %d events, now %.0f/s in changes of 64\n", head, s.restart, rate*64)
	}
	if head < s.restart {
		fmt.Printf("%d of %d events are there: run it again for the rest\n", head, s.restart)
	}
	return head, nil
}

// resident returns the memory of a process that is its own, in bytes: pages of
// files that are mapped can be dropped at any time (RssAnon, proc(5)).
func resident(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("the process has no RssAnon in its status")
}
