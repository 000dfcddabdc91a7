package agentsim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/load"
	"rutter/log"
)

// tag is the object whose changes concern every compute node.
const tag = "agentsim"

// Scenario is a cluster and a fleet on it.
type Scenario struct {
	Cluster *bench.Cluster
	Fleet   *Fleet
	Submit  bench.Submit

	mtu atomic.Uint32
}

// Write writes one change that concerns every agent, and returns its seq.
func (s *Scenario) Write(ctx context.Context) (log.Seq, error) {
	op := log.Op{Action: log.Update, Kind: log.KindNICTag, ID: tag, Set: []string{"mtu"}, Object: &log.NICTag{Name: tag, MTU: 1500 + s.mtu.Add(1)%7000}}
	result, err := s.Submit(ctx, &log.Change{ID: client.NewChangeID(), Ops: []log.Op{op}})
	if err == nil && result.Refusal != nil {
		err = result.Refusal
	}
	return result.Last, err
}

// Prepare makes the object that Write changes.
func (s *Scenario) Prepare(ctx context.Context) error {
	if _, err := s.Cluster.Client.Get(ctx, "/nic_tags/"+tag, nil); err == nil {
		return nil
	}
	_, err := s.Cluster.Client.Create(ctx, "/nic_tags", fmt.Appendf(nil, `{"name":%q}`, tag))
	return err
}

// FanOutcome is the result of a fan-out.
type FanOutcome struct {
	Agents      int     `json:"agents"`
	Written     uint64  `json:"written"`
	PerSecond   float64 `json:"written_per_second"`
	Deliveries  uint64  `json:"deliveries"`
	DeliveriesS float64 `json:"deliveries_per_second"`
	P50         float64 `json:"p50_ms"`
	P99         float64 `json:"p99_ms"`
	Max         float64 `json:"max_ms"`
	CPU         float64 `json:"server_cpu_us_per_delivery"` // of all servers together; 0: this process did not start them
	Growth      int64   `json:"server_memory_growth_bytes"` // in the last two thirds: see memory.go
	Memory      []Usage `json:"server_memory"`              // every second
	MissingAt   int     `json:"agents_behind_at_end"`
}

// Fan writes entries at a rate for a time, and measures their delays. The agents must
// be live.
func (s *Scenario) Fan(ctx context.Context, rate int, duration time.Duration) (o FanOutcome, err error) {
	// A second to warm up, which is not counted.
	if _, err := s.paced(ctx, rate, time.Second); err != nil {
		return o, err
	}
	s.Fleet.Delays()
	before, cpu := s.Fleet.Counts(), s.cpu()
	watched := s.watchMemory(ctx)
	begin := time.Now()
	last, err := s.paced(ctx, rate, duration)
	o.Memory = watched()
	if err != nil {
		return o, err
	}
	took := time.Since(begin)
	patience, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := s.Fleet.AwaitSeq(patience, last); err != nil {
		o.MissingAt = 1
	}
	used := s.cpu() - cpu
	after := s.Fleet.Counts()
	delays := s.Fleet.Delays()
	o.Agents, o.Written = len(s.Fleet.agents), uint64(rate)*uint64(duration.Milliseconds())/1000
	o.PerSecond = float64(o.Written) / took.Seconds()
	o.Deliveries = after.Entries - before.Entries
	o.DeliveriesS = float64(o.Deliveries) / took.Seconds()
	o.P50, o.P99, o.Max = load.Millis(delays.Quantile(.5)), load.Millis(delays.Quantile(.99)), load.Millis(delays.Max())
	o.CPU = float64(used.Microseconds()) / math.Max(float64(o.Deliveries), 1)
	o.Growth = growth(o.Memory)
	return o, nil
}

// paced writes at a fixed rate, independent of the time that answers take, and returns
// the last seq.
func (s *Scenario) paced(ctx context.Context, rate int, duration time.Duration) (last log.Seq, err error) {
	var mu sync.Mutex
	var writing sync.WaitGroup
	begin := time.Now()
	n := int(duration.Seconds() * float64(rate))
	for i := range n {
		if wait := time.Until(begin.Add(time.Duration(float64(i) / float64(rate) * float64(time.Second)))); wait > 0 {
			time.Sleep(wait)
		}
		writing.Go(func() {
			seq, writeErr := s.Write(ctx)
			mu.Lock()
			defer mu.Unlock()
			last = max(last, seq)
			err = errors.Join(err, writeErr)
		})
	}
	writing.Wait()
	return last, err
}

// BarrierOutcome is the result of barriers.
type BarrierOutcome struct {
	Count int     `json:"count"`
	CNs   int     `json:"cns"`
	P50   float64 `json:"p50_ms"` // after the commit
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`
}

// RegisterNodes writes the agents' compute nodes to the log, because barriers wait for
// those.
func (s *Scenario) RegisterNodes(ctx context.Context) error {
	for i := range s.Fleet.agents {
		body := fmt.Appendf(nil, `{"uuid":%q,"hostname":"sim%d"}`, CN(i), i)
		if _, err := s.Cluster.Client.Create(ctx, "/servers", body); err != nil {
			return err
		}
	}
	return nil
}

// Barriers writes a change and waits for it, n times, one after another.
func (s *Scenario) Barriers(ctx context.Context, n int) (o BarrierOutcome, err error) {
	var times load.Histogram
	for range n {
		seq, err := s.Write(ctx)
		if err != nil {
			return o, err
		}
		begin := time.Now()
		v, err := s.Cluster.Client.Wait(ctx, client.Barrier{Seq: seq, Scopes: []log.Scope{log.AllScope()}, Timeout: 10 * time.Second})
		if err != nil {
			return o, err
		}
		if !v.Done {
			return o, fmt.Errorf("barrier at %d: %d of %d are missing, %s; the first: %+v", seq, v.Total, v.CNs, v.Reason, v.Missing[:min(len(v.Missing), 1)])
		}
		times.Add(time.Since(begin))
		o.CNs = v.CNs
	}
	o.Count, o.P50, o.P99, o.Max = n, load.Millis(times.Quantile(.5)), load.Millis(times.Quantile(.99)), load.Millis(times.Max())
	return o, nil
}

// StormOutcome is the result of the loss of a server.
type StormOutcome struct {
	Agents    int     `json:"agents"`
	Seconds   float64 `json:"all_live_again_s"`
	Snapshots uint64  `json:"scopes_sent_whole"`
	Connects  uint64  `json:"connects"`
}

// Storm kills the server that the agents follow, and measures the time until all follow
// another.
func (s *Scenario) Storm(ctx context.Context, victim int) (o StormOutcome, err error) {
	before := s.Fleet.Counts()
	begin := time.Now()
	if err := s.Cluster.Servers[victim].Stop(syscall.SIGKILL); err != nil {
		return o, err
	}
	// A high live count may include connections that have not noticed the loss yet.
	for s.Fleet.Counts().Failures == before.Failures {
		time.Sleep(time.Millisecond)
	}
	patience, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for s.Fleet.Counts().Connects-before.Connects < uint64(len(s.Fleet.agents)) && patience.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	if err := s.Fleet.AwaitLive(patience, len(s.Fleet.agents)); err != nil {
		return o, fmt.Errorf("%d of %d agents are live: %w", s.Fleet.Counts().Live, len(s.Fleet.agents), err)
	}
	after := s.Fleet.Counts()
	return StormOutcome{len(s.Fleet.agents), time.Since(begin).Seconds(), after.Scopes - before.Scopes, after.Connects - before.Connects}, nil
}

// cpu is the processor time of the servers so far, 0 if this process did not start
// them.
func (s *Scenario) cpu() (used time.Duration) {
	for _, p := range s.Cluster.Servers {
		if p.Program != "" {
			used += CPU(p.PID())
		}
	}
	return used
}

// ticksPerSecond is USER_HZ of Linux, in which /proc counts (proc(5)).
const ticksPerSecond = 100

// CPU returns the processor time of a process, 0 if it has ended.
func CPU(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name, in parentheses, may hold spaces; utime and stime are fields 14 and 15.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(string(fields[11]), 10, 64)
	system, _ := strconv.ParseInt(string(fields[12]), 10, 64)
	return time.Duration(user+system) * time.Second / ticksPerSecond
}
