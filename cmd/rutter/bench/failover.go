package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"rutter/api/client"
	"rutter/cmd/rutter/bench/load"
	"rutter/log"
)

// FailoverOutcome is how long nothing was acknowledged, in milliseconds, sorted.
type FailoverOutcome struct {
	Gaps []float64 `json:"gaps_ms"`
	P50  float64   `json:"p50_ms"`
	P99  float64   `json:"p99_ms"` // of less than 100: the longest
	Lost int       `json:"lost"`   // acknowledged changes that are gone: must be 0
}

func failoverOutcome(gaps []time.Duration, lost int) FailoverOutcome {
	slices.Sort(gaps)
	o := FailoverOutcome{Lost: lost}
	for _, g := range gaps {
		o.Gaps = append(o.Gaps, load.Millis(g))
	}
	if n := len(gaps); n > 0 {
		o.P50, o.P99 = o.Gaps[n/2], o.Gaps[min(n-1, n*99/100)]
	}
	return o
}

// settle is the time of writing between two faults.
const settle = 500 * time.Millisecond

// Failover kills the leader by SIGKILL, n times, under a writer on one stream, and
// measures from the kill to the next acknowledgement of a change that was submitted
// after it. Each time it starts the killed server again.
func Failover(ctx context.Context, c *Cluster, w *Workload, n int, told func(i int, gap time.Duration)) (FailoverOutcome, error) {
	return measureFaults(ctx, c, w, n, told, func(leader *Server) error {
		return leader.Stop(syscall.SIGKILL)
	}, func(leader *Server) error {
		if err := leader.Start(); err != nil {
			return err
		}
		return c.AwaitReady(ctx, leader)
	})
}

// Transfer hands the leadership over in order, n times, under a writer on one
// stream, and measures the longest time without an acknowledgement around it.
func Transfer(ctx context.Context, c *Cluster, w *Workload, n int, told func(i int, gap time.Duration)) (FailoverOutcome, error) {
	return measureFaults(ctx, c, w, n, told, func(*Server) error {
		_, err := c.Client.Raw(ctx, http.MethodPost, "/cluster/transfer", nil)
		return err
	}, func(*Server) error { return nil })
}

// acknowledged is a change that was, with the seq it got.
type acknowledged struct {
	id  string
	seq log.Seq
}

// measureFaults makes the leader fail n times and repairs it, under a writer.
func measureFaults(ctx context.Context, c *Cluster, w *Workload, n int, told func(int, time.Duration), fail, mend func(*Server) error) (FailoverOutcome, error) {
	var gaps []time.Duration
	var all []acknowledged
	err := Streams(ctx, c, 1, func(submit []Submit) error {
		writer := newSteadyWriter(ctx, submit[0], w)
		defer func() { all = writer.stop() }()
		for i := range n {
			if err := pause(ctx, settle); err != nil {
				return err
			}
			leader, err := c.Leader(ctx)
			if err != nil {
				return err
			}
			begin := writer.mark()
			if err := fail(leader); err != nil {
				return err
			}
			gap, err := writer.gapSince(ctx, begin)
			if err != nil {
				return err
			}
			gaps = append(gaps, gap)
			told(i+1, gap)
			if err := mend(leader); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return failoverOutcome(gaps, 0), err
	}
	lost, err := missing(ctx, c, all)
	return failoverOutcome(gaps, lost), err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// steadyWriter writes one change after the other, and notes when each was
// submitted and acknowledged.
type steadyWriter struct {
	cancel context.CancelFunc
	ended  chan struct{}
	wrote  chan struct{} // after each acknowledgement, at most one waits
	all    []acknowledged
	// since is when mark was called, in ns; worst the longest gap between two
	// acknowledgements since then, and clear whether it is over: a change
	// submitted after mark was acknowledged, and one more.
	since, worst, clear atomic.Int64
}

func newSteadyWriter(ctx context.Context, submit Submit, w *Workload) *steadyWriter {
	ctx, cancel := context.WithCancel(ctx)
	x := &steadyWriter{cancel: cancel, ended: make(chan struct{}), wrote: make(chan struct{}, 1)}
	go func() {
		defer close(x.ended)
		last := time.Now()
		for ctx.Err() == nil {
			c := w.Create()
			submitted := time.Now()
			result, err := submit(ctx, c)
			if err != nil {
				continue // the outage took longer than the client's patience
			}
			now := time.Now()
			x.all = append(x.all, acknowledged{c.Ops[0].Object.ID(), result.Last})
			x.note(submitted, last, now)
			last = now
		}
	}()
	return x
}

func (x *steadyWriter) note(submitted, last, now time.Time) {
	if since := x.since.Load(); since != 0 && now.UnixNano() > since {
		from := max(last.UnixNano(), since)
		x.worst.Store(max(x.worst.Load(), now.UnixNano()-from))
		if submitted.UnixNano() > since {
			x.clear.Add(1)
		}
	}
	select {
	case x.wrote <- struct{}{}:
	default:
	}
}

// mark begins the measurement of a gap.
func (x *steadyWriter) mark() time.Time {
	now := time.Now()
	x.worst.Store(0)
	x.clear.Store(0)
	x.since.Store(now.UnixNano())
	return now
}

// afterwards is the number of changes that must be written after a gap before it counts
// as over, and quiet the least time of that, because the first of them may have been
// under way.
const (
	afterwards = 20
	quiet      = 300 * time.Millisecond
)

// gapSince waits until writing goes on, and returns the longest time without
// an acknowledgement since begin.
func (x *steadyWriter) gapSince(ctx context.Context, begin time.Time) (time.Duration, error) {
	for x.clear.Load() < afterwards || time.Since(begin) < quiet {
		select {
		case <-x.wrote:
		case <-x.ended:
			return 0, errors.New("the writer has ended")
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return time.Duration(x.worst.Load()), nil
}

// stop ends the writer and returns what was acknowledged.
func (x *steadyWriter) stop() []acknowledged {
	x.cancel()
	<-x.ended
	return x.all
}

// missing counts the acknowledged changes that the log does not have at their
// acknowledged seq.
func missing(ctx context.Context, c *Cluster, all []acknowledged) (int, error) {
	at := make(map[log.Seq]string, len(all))
	var last log.Seq
	for _, a := range all {
		at[a.seq] = a.id
		last = max(last, a.seq)
	}
	if len(at) != len(all) {
		return len(all) - len(at), fmt.Errorf("%d acknowledged changes share a seq with another", len(all)-len(at))
	}
	leader, err := c.Leader(ctx)
	if err != nil {
		return 0, err
	}
	reader, err := Connect(client.Config{Servers: []string{leader.URL}})
	if err != nil {
		return 0, err
	}
	defer reader.Client.Close()
	// Wait first. A server that has not applied the last of them yet would look as if
	// it had lost them: a follower learns of a commit after its leader, and a new
	// leader learns later of its predecessor's commits.
	if _, err := reader.Client.Get(ctx, "/status", url.Values{"consistent": {"1"}, "min_seq": {last.String()}}); err != nil {
		return 0, fmt.Errorf("%s does not come to seq %d, which was acknowledged: %w", leader.ID, last, err)
	}
	var head log.Seq
	for e, err := range reader.Client.Entries(ctx, 0) {
		if err != nil {
			return 0, err
		}
		head = e.Seq
		id, ok := at[e.Seq]
		if !ok {
			continue
		}
		event, err := e.Event()
		if err != nil {
			return 0, err
		}
		if event.ID == id {
			delete(at, e.Seq)
		}
	}
	if len(at) > 0 {
		return len(at), fmt.Errorf("%d acknowledged changes are not in the log of %s, whose head is %d: %v", len(at), leader.ID, head, at)
	}
	return 0, nil
}
