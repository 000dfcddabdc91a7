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

	"rutter/integration/bench"
	"rutter/integration/bench/load"
)

// fillAtOnce is how many events are written between two looks at the clock.
const fillAtOnce = 250_000

// runRestart restarts a server with a large log, and looks at its memory and at
// how fast it appends. The log is built once, and kept for the next time.
func (s *suite) runRestart(ctx context.Context) (err error) {
	fresh, freshRate, err := s.freshServer(ctx)
	if err != nil {
		return err
	}
	c, err := bench.StartCluster(ctx, bench.Options{Program: s.rutter, Servers: 1, Dir: s.kept})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	server := c.Servers[0]
	head, err := s.fillUp(ctx, c)
	if err != nil || head < s.restart {
		return err
	}
	if err := server.Stop(syscall.SIGKILL); err != nil {
		return err
	}
	begin := time.Now()
	if err := server.Start(); err != nil {
		return err
	}
	if err := c.AwaitReady(ctx, server); err != nil {
		return err
	}
	took := time.Since(begin)
	serving, err := resident(server.PID())
	if err != nil {
		return err
	}
	status, err := c.Client.StatusOf(ctx, server.URL)
	if err != nil {
		return err
	}
	objects := 0
	for _, n := range status.Objects {
		objects += n
	}
	each := float64(serving-fresh) / float64(objects)
	fmt.Printf("%d events, %d objects: restart to serving %.2f s, %d MiB resident, %.0f bytes an object\n", head, objects, took.Seconds(), serving>>20, each)
	o, err := s.appendSome(ctx, c)
	if err != nil {
		return err
	}
	fmt.Printf("64 writers: %.0f/s on an empty log, %.0f/s after %d events: %.2f of it\n", freshRate, o.PerSecond, head, o.PerSecond/freshRate)
	s.Set("restart_10m_s", took.Seconds())
	s.Set("bytes_per_object", each)
	return nil
}

// freshServer returns what an empty server has resident, and how fast it appends.
func (s *suite) freshServer(ctx context.Context) (bytes int64, rate float64, err error) {
	c, err := s.cluster(ctx, "empty", 1)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if bytes, err = resident(c.Servers[0].PID()); err != nil {
		return 0, 0, err
	}
	o, err := s.appendSome(ctx, c)
	return bytes, o.PerSecond, err
}

// appendSome appends with 64 writers to one server.
func (s *suite) appendSome(ctx context.Context, c *bench.Cluster) (load.Outcome, error) {
	w, err := bench.NewWorkload(eventSize)
	if err != nil {
		return load.Outcome{}, err
	}
	return bench.Append(ctx, c, w, bench.Connections, false, load.Plan{Writers: 64, Duration: s.seconds, Warm: time.Second})
}

// fillUp writes what the kept log lacks, for as long as -fill says, and returns
// its head.
func (s *suite) fillUp(ctx context.Context, c *bench.Cluster) (head uint64, err error) {
	w, err := bench.NewWorkload(eventSize)
	if err != nil {
		return 0, err
	}
	w.Again()
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
