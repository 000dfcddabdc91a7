package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"rutter/agent/link/plan"

	"golang.org/x/sync/errgroup"

	"rutter/agent"
	"rutter/agent/link"
	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/agentsim"
	"rutter/cmd/rutter/bench/load"
	"rutter/integration/bench/etcd"
	"rutter/log"
)

// Sizes of what is measured.
const (
	stormAgents  = 10_000
	coldAgents   = 2_000
	coldMappings = 100 // of each
	coldRounds   = 12
	barriers     = 200
	barrierCNs   = 100
	backlog      = 1_000_000 // entries that an agent is behind
	relevantPart = 100       // one in so many concerns the scanning agent
	fillRounds   = 20
	coldPause    = time.Second
	settle       = 3 * time.Second // for what is idle to become so
)

// fan measures entries that concern all agents.
func (s *suite) fan(ctx context.Context, agents, rate int) (o agentsim.FanOutcome, err error) {
	err = s.on(ctx, "fan", func(c *bench.Cluster) error {
		return with(ctx, c, agentsim.Config{Agents: agents, First: even}, func(stage *agentsim.Scenario) (err error) {
			o, err = stage.Fan(ctx, rate, s.fanTime)
			printMemory(o.Memory)
			o.Memory = nil
			fmt.Fprintf(os.Stderr, "%d agents at %d/s: %+v\n", agents, rate, o)
			return err
		})
	})
	if err == nil && o.MissingAt > 0 {
		err = errors.New("agents were behind 30 s after the last entry")
	}
	return o, err
}

// printMemory prints what the servers held, some ten times.
func printMemory(all []agentsim.Usage) {
	for i, u := range all {
		if i%max(len(all)/10, 1) == 0 {
			fmt.Fprintf(os.Stderr, "at %4.0f s: resident MB %v, heap in use MB %v, collections %v\n", u.Seconds, megas(u.Resident), megas(u.HeapUsed), u.Cycles)
		}
	}
}

func (s *suite) fan200(ctx context.Context) error {
	o, err := s.fan(ctx, 200, 100)
	if err != nil {
		return err
	}
	s.Set("fan200_p99_ms", o.P99)
	return s.compare(ctx, o)
}

func (s *suite) fan1000(ctx context.Context) error {
	o, err := s.fan(ctx, 1000, 1000)
	if err != nil {
		return err
	}
	s.Set("fan1000_p99_ms", o.P99)
	return nil
}

// saturatingRate is more events a second than 1,000 subscribers and two cores can
// each have a turn for: what a delivery costs is asked where servers have no time
// to spare, since with some they spend it on being early.
const saturatingRate = 1600

func (s *suite) fanSaturated(ctx context.Context) error {
	o, err := s.fan(ctx, 1000, saturatingRate)
	if err != nil {
		return err
	}
	s.Set("cpu_us_per_delivery", o.CPU)
	return nil
}

// compare does the smaller fan-out with etcd.
func (s *suite) compare(ctx context.Context, ours agentsim.FanOutcome) (err error) {
	if !s.hasRival() {
		return nil
	}
	e, err := etcd.Start(ctx, s.etcd, filepath.Join(s.dir, "etcd"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Stop()) }()
	before := cpu(e)
	cmd := exec.CommandContext(ctx, s.rival, "-endpoints", strings.Join(e.URLs, ","), "-what", "fanout",
		"-connections", "200", "-rate", "100", "-duration", s.fanTime.String(), "-size", "200")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	used := cpu(e) - before
	var theirs load.Outcome
	if err := json.Unmarshal(out, &theirs); err != nil {
		return err
	}
	if theirs.Count == 0 || theirs.P99 == 0 {
		return fmt.Errorf("etcd delivered nothing: %+v", theirs)
	}
	perDelivery := float64(used.Microseconds()) / float64(theirs.Count)
	fmt.Fprintf(os.Stderr, "etcd: %+v, %.2f us of CPU per delivery\n", theirs, perDelivery)
	s.Set("fan200_p99_vs_etcd", ours.P99/theirs.P99)
	s.Set("cpu_vs_etcd", ours.CPU/perDelivery)
	return nil
}

func (s *suite) barrier(ctx context.Context) error {
	return s.on(ctx, "barrier", func(c *bench.Cluster) error {
		return with(ctx, c, agentsim.Config{Agents: barrierCNs, First: even}, func(stage *agentsim.Scenario) error {
			if err := stage.RegisterNodes(ctx); err != nil {
				return err
			}
			o, err := stage.Barriers(ctx, barriers)
			fmt.Fprintf(os.Stderr, "barriers: %+v\n", o)
			s.Set("barrier100_p99_ms", o.P99)
			return err
		})
	})
}

// storm measures idle subscribers of one server, and then its loss.
func (s *suite) storm(ctx context.Context) error {
	return s.on(ctx, "storm", func(c *bench.Cluster) error {
		before := agentsim.Resident(c.Servers[0].PID())
		return with(ctx, c, agentsim.Config{Agents: stormAgents, First: func(int) int { return 0 }}, func(stage *agentsim.Scenario) error {
			time.Sleep(settle)
			s.Set("bytes_per_idle_subscriber", float64(agentsim.Resident(c.Servers[0].PID())-before)/stormAgents)
			o, err := stage.Storm(ctx, 0)
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "storm: %+v\n", o)
			s.Set("storm_10k_s", o.Seconds)
			s.Set("storm_snapshots", float64(o.Snapshots))
			return nil
		})
	})
}

// stormCold measures compute nodes that all lost what they held, again and
// again: what the servers hold must not grow from one time to the next.
func (s *suite) stormCold(ctx context.Context) error {
	return s.on(ctx, "stormcold", func(c *bench.Cluster) error {
		return with(ctx, c, agentsim.Config{Agents: coldAgents, First: even}, func(stage *agentsim.Scenario) error {
			if err := stage.Populate(ctx, coldMappings); err != nil {
				return err
			}
			for range coldRounds {
				time.Sleep(coldPause)
				o, err := stage.Cold(ctx)
				if err != nil {
					return err
				}
				fmt.Fprintf(os.Stderr, "%d agents without a cursor: all live after %.2f s, %d scopes sent whole (%d shared), %d objects, %d connections, %d told to come again; resident MB of each server before %v, most %v, after %v; heap in use after %v, collections %v\n",
					o.Agents, o.Seconds, o.Snapshots, o.Shared, o.Objects, o.Connects, o.Refused, megas(o.Before), megas(o.Most), megas(o.After), megas(o.Heap), o.Cycles)
			}
			return nil
		})
	})
}

func megas(bytes []int64) []int64 {
	var all []int64
	for _, n := range bytes {
		all = append(all, n>>20)
	}
	return all
}

// catchUp measures two agents that are a million entries behind: one that they
// concern, with its cache and its state, and one that few of them concern.
func (s *suite) catchUp(ctx context.Context) error {
	return s.on(ctx, "catchup", func(c *bench.Cluster) error {
		w, err := bench.NewWorkload(400)
		if err != nil {
			return err
		}
		fleet := agentsim.New(agentsim.Config{Agents: 1, Dialer: c.Client, Servers: c.Client.Servers()})
		follow := func(until func() error) error {
			ctx, cancel := context.WithCancel(ctx)
			running := make(chan struct{})
			go func() { defer close(running); fleet.Run(ctx) }()
			defer func() { cancel(); <-running }()
			return until()
		}
		// Who begins at seq 0 has no digests to wait for.
		if err := (&agentsim.Scenario{Cluster: c}).Prepare(ctx); err != nil {
			return err
		}
		if err := follow(func() error { return fleet.AwaitLive(ctx, 1) }); err != nil {
			return err
		}
		if _, err := s.realAgent(ctx, c, 0); err != nil {
			return err
		}
		head, err := fill(ctx, c, fleet, w)
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := follow(func() error { return fleet.AwaitSeq(ctx, head) }); err != nil {
			return err
		}
		s.Set("scan_per_s", backlog/time.Since(begin).Seconds())
		took, err := s.realAgent(ctx, c, head)
		if err != nil {
			return err
		}
		s.Set("catchup_per_s", backlog/took.Seconds())
		return nil
	})
}

// fill writes the backlog: one in relevantPart concerns all agents, the rest the
// compute node of the workload's VMs.
func fill(ctx context.Context, c *bench.Cluster, fleet *agentsim.Fleet, w *bench.Workload) (log.Seq, error) {
	var head log.Seq
	err := bench.Streams(ctx, c, 4, func(submit []bench.Submit) error {
		stage := &agentsim.Scenario{Cluster: c, Fleet: fleet, Submit: submit[0]}
		for round := range uint64(fillRounds) {
			const all = backlog / fillRounds
			const own = (all - all/relevantPart + 63) / 64 * 64 // in whole changes
			if _, _, err := bench.FillOn(ctx, c, w, round*own, (round+1)*own, 1000, func(uint64) {}); err != nil {
				return err
			}
			var g errgroup.Group
			g.SetLimit(64)
			for range all / relevantPart {
				g.Go(func() error { _, err := stage.Write(ctx); return err })
			}
			if err := g.Wait(); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		head, err = c.Client.Head(ctx)
	}
	return head, err
}

// realAgent runs an agent with a kernel in memory until it has applied a seq, on
// the compute node of the workload's VMs, and returns how long that took.
func (s *suite) realAgent(ctx context.Context, c *bench.Cluster, until log.Seq) (took time.Duration, err error) {
	a, err := agent.New(agent.Config{
		CN: log.UUID{15: 1}, Folder: filepath.Join(s.dir, "agent"), Servers: c.Client.Servers(), Dialer: c.Client, Logger: slog.New(slog.DiscardHandler),
		Kernel: func(numbers plan.Numbers, save func(plan.Numbers) error) (agent.Kernel, error) {
			return link.NewManager(link.ManagerConfig{Kernel: new(plan.Fake), Numbers: numbers, Save: save}), nil
		},
	})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	running := make(chan error, 1)
	begin := time.Now()
	go func() { running <- a.Run(ctx) }()
	defer func() { cancel(); err = errors.Join(err, <-running, a.Close()) }()
	for {
		if status := a.Status(); status.Checked > 0 && status.Applied >= until {
			return time.Since(begin), nil
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// cpu is what etcd's servers have used so far.
func cpu(e *etcd.Cluster) (used time.Duration) {
	for _, p := range e.Processes {
		used += agentsim.CPU(p.PID())
	}
	return used
}
