package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/load"
	"rutter/log"
	"rutter/log/feed"
)

// The workload of rings: VMMs on simulated compute nodes that all follow one
// server, which may have 10 pulls outstanding. Three servers are processes on
// loopback; what is recorded is read from the log of another one.
const (
	ringNodes = 10
	ringVMMs  = 1000

	ringRate = 200 // rings/s while the delay is measured; as many commits beside
	ringFor  = 10 * time.Second
	ringWarm = 2 * time.Second
	ringLast = 10 * time.Second // for the last rings to be recorded
)

// ringResult is what rings took.
type ringResult struct {
	rings, commits load.Histogram // until they are read in the log
	perSecond      float64        // rings recorded when each VMM rings again as soon as it is recorded
}

// simulated is a VMM of a simulated compute node.
type simulated struct {
	id, vm log.UUID
	node   *ringNode

	mu   sync.Mutex // protects what follows
	gen  uint64
	rang time.Time
}

// ringNode is one compute node's connection.
type ringNode struct {
	cn   log.UUID
	conn *feed.Conn
	vmms map[log.UUID]*simulated
}

// Request implements feed.RequestHandler as an agent's VMM service does.
func (n *ringNode) Request(m *feed.Request) error {
	answer := &feed.Response{Number: m.Number, Status: 200, Body: []byte("{}")}
	text, rest, _ := strings.Cut(strings.TrimPrefix(m.Path, "/vmms/"), "/")
	id, err := log.ParseUUID(text)
	if err != nil {
		return err
	}
	if rest == "state" {
		v := n.vmms[id]
		v.mu.Lock()
		state := map[string]any{"vmm_state": map[string]any{"state": []string{"running", "rebooting"}[v.gen%2], "gen": v.gen, "time_updated": time.Now().UTC()}}
		v.mu.Unlock()
		if answer.Body, err = json.Marshal(state); err != nil {
			return err
		}
	}
	return n.conn.Send(context.Background(), answer)
}

// The stream itself is of no interest here.

// Welcome implements feed.Handler.
func (n *ringNode) Welcome(*feed.Welcome) error { return nil }

// Reset implements feed.Handler.
func (n *ringNode) Reset(*feed.Reset) error { return nil }

// Entry implements feed.Handler.
func (n *ringNode) Entry(*feed.Entry) error { return nil }

// Object implements feed.Handler.
func (n *ringNode) Object(*feed.Object) error { return nil }

// ScopeBegin implements feed.Handler.
func (n *ringNode) ScopeBegin(*feed.ScopeBegin) error { return nil }

// ScopeEnd implements feed.Handler.
func (n *ringNode) ScopeEnd(*feed.ScopeEnd) error { return nil }

// ScopeDropped implements feed.Handler.
func (n *ringNode) ScopeDropped(*feed.ScopeDropped) error { return nil }

// Bookmark implements feed.Handler.
func (n *ringNode) Bookmark(*feed.Bookmark) error { return nil }

// ring gives a VMM its next state, and rings for it.
func (v *simulated) ring(ctx context.Context) error {
	v.mu.Lock()
	v.gen++
	v.rang = time.Now()
	v.mu.Unlock()
	return v.node.conn.Send(ctx, &feed.Ring{VMMs: []log.UUID{v.id}})
}

// ringBench is a cluster with its compute nodes.
type ringBench struct {
	cluster *bench.Cluster
	nodes   []*ringNode
	vmms    []*simulated
	byID    map[string]*simulated
	comment string // id of the server object that commits change

	mu      sync.Mutex // protects what follows
	sent    map[string]time.Time
	result  ringResult
	timed   bool // what is read in the log is timed
	again   bool // a VMM rings as soon as it is recorded
	counted int  // states that were recorded
}

// measureRings runs the whole of it.
func measureRings(ctx context.Context, out io.Writer, program string) (_ *ringResult, err error) {
	folder, err := os.MkdirTemp("", "vmbench")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	cluster, err := bench.StartCluster(ctx, bench.Options{Program: program, Servers: 3, Dir: filepath.Join(folder, "servers")})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	b := &ringBench{cluster: cluster, byID: make(map[string]*simulated), sent: make(map[string]time.Time)}
	if err := b.fill(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	g, running := errgroup.WithContext(ctx)
	defer func() {
		cancel()
		if ended := g.Wait(); err == nil && ended != nil && !errors.Is(ended, context.Canceled) {
			err = ended
		}
	}()
	leader, err := cluster.Leader(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.connect(running, g, leader); err != nil {
		return nil, err
	}
	if err := b.paced(running, ringWarm, false); err != nil {
		return nil, err
	}
	if err := b.paced(running, ringFor, true); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "%d rings/s and as many commits/s for %s, each until it is read in another server's log: ring p50 %s p99 %s, commit p50 %s p99 %s\n", ringRate, ringFor,
		b.result.rings.Quantile(.5), b.result.rings.Quantile(.99), b.result.commits.Quantile(.5), b.result.commits.Quantile(.99))
	if err := b.flatOut(running); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "%d VMMs that ring again as soon as they are recorded: %.0f rings/s recorded for %s\n", ringVMMs, b.result.perSecond, ringFor)
	return &b.result, nil
}

// fill makes the objects.
func (b *ringBench) fill(ctx context.Context) error {
	c := &log.Change{ID: client.NewChangeID()}
	for range ringNodes {
		n := &ringNode{cn: client.NewChangeID(), vmms: make(map[log.UUID]*simulated)}
		b.nodes = append(b.nodes, n)
		c.Ops = append(c.Ops, log.Op{Action: log.Create, Kind: log.KindServer, Set: []string{"hostname", "uuid"}, Object: &log.Server{UUID: n.cn, Hostname: "cn"}})
	}
	b.comment = b.nodes[0].cn.String()
	for i := range ringVMMs {
		v := &simulated{id: client.NewChangeID(), vm: client.NewChangeID(), gen: 1, node: b.nodes[i%ringNodes]}
		v.node.vmms[v.id] = v
		b.vmms, b.byID[v.id.String()] = append(b.vmms, v), v
		c.Ops = append(c.Ops, log.Op{
			Action: log.Create, Kind: log.KindVMM, Set: []string{"gen", "id", "instance_id", "sled_id", "state"},
			Object: &log.VMM{UUID: v.id, InstanceID: v.vm, SledID: v.node.cn, State: "running", Gen: 1},
		})
	}
	_, err := b.cluster.Client.Submit(ctx, c)
	return err
}

// connect follows the feed for each node at one server that does not lead, and
// the log at the other.
func (b *ringBench) connect(ctx context.Context, g *errgroup.Group, leader *bench.Server) error {
	var others []*bench.Server
	for _, s := range b.cluster.Servers {
		if s != leader {
			others = append(others, s)
		}
	}
	for _, n := range b.nodes {
		conn, err := b.cluster.Client.Feed(ctx, others[0].URL)
		if err != nil {
			return err
		}
		n.conn = feed.NewConn(conn)
		g.Go(func() error {
			return n.conn.Follow(ctx, &feed.Hello{CN: n.cn, Incarnation: 1, Session: 1, Abilities: feed.AnswersRequests}, n)
		})
	}
	reader, err := client.New(client.Config{Servers: []string{others[1].URL}})
	if err != nil {
		return err
	}
	head, err := b.cluster.Client.Head(ctx)
	if err != nil {
		return err
	}
	g.Go(func() error {
		defer reader.Close()
		for line, err := range reader.Log(ctx, client.LogQuery{After: head, Follow: true, Query: url.Values{"min_seq": {head.String()}}}) {
			if err != nil {
				return err
			}
			if err := b.seen(ctx, line); err != nil {
				return err
			}
		}
		return nil
	})
	return nil
}

// seen takes an entry of the log.
func (b *ringBench) seen(ctx context.Context, line log.Line) error {
	now := time.Now()
	b.mu.Lock()
	if at, ok := b.sent[line.Event.ChangeID.String()]; ok {
		if b.timed {
			b.result.commits.Add(now.Sub(at))
		}
		delete(b.sent, line.Event.ChangeID.String())
	}
	v := b.byID[line.Event.ID]
	if v == nil || line.Event.Kind != log.KindVMM {
		b.mu.Unlock()
		return nil
	}
	b.counted++
	v.mu.Lock()
	if line.Event.Object.(*log.VMM).Gen == v.gen && !v.rang.IsZero() {
		if b.timed {
			b.result.rings.Add(now.Sub(v.rang))
		}
		v.rang = time.Time{}
	}
	v.mu.Unlock()
	again := b.again
	b.mu.Unlock()
	if again {
		return v.ring(ctx)
	}
	return nil
}

// paced rings and commits at a steady rate; it is timed only if counts.
func (b *ringBench) paced(ctx context.Context, during time.Duration, counts bool) error {
	b.mu.Lock()
	b.timed = counts
	b.mu.Unlock()
	commits := new(errgroup.Group)
	tick := time.NewTicker(time.Second / ringRate)
	defer tick.Stop()
	began := time.Now()
	for i := 0; time.Since(began) < during; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := b.vmms[i%ringVMMs].ring(ctx); err != nil {
			return err
		}
		commits.Go(func() error { return b.commit(ctx, i) })
	}
	if err := commits.Wait(); err != nil {
		return err
	}
	return b.settle(ctx)
}

// commit changes one object.
func (b *ringBench) commit(ctx context.Context, i int) error {
	id := client.NewChangeID()
	b.mu.Lock()
	b.sent[id.String()] = time.Now()
	b.mu.Unlock()
	_, err := b.cluster.Client.Submit(ctx, &log.Change{ID: id, Ops: []log.Op{{
		Action: log.Update, Kind: log.KindServer, ID: b.comment, Set: []string{"comments"}, Object: &log.Server{Comments: fmt.Sprint(i, id)},
	}}})
	return err
}

// settle waits until every VMM's last state is recorded.
func (b *ringBench) settle(ctx context.Context) error {
	deadline := time.Now().Add(ringLast)
	for {
		waiting := 0
		for _, v := range b.vmms {
			v.mu.Lock()
			if !v.rang.IsZero() {
				waiting++
			}
			v.mu.Unlock()
		}
		if waiting == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d rings are not recorded %s after the last", waiting, ringLast)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// flatOut makes every VMM ring, and ring again as soon as that is recorded.
func (b *ringBench) flatOut(ctx context.Context) error {
	b.mu.Lock()
	b.timed, b.again = false, true
	b.mu.Unlock()
	for _, v := range b.vmms {
		if err := v.ring(ctx); err != nil {
			return err
		}
	}
	time.Sleep(ringWarm)
	b.mu.Lock()
	before, began := b.counted, time.Now()
	b.mu.Unlock()
	select {
	case <-time.After(ringFor):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	b.mu.Lock()
	b.result.perSecond = float64(b.counted-before) / time.Since(began).Seconds()
	b.again = false
	b.mu.Unlock()
	return b.settle(ctx)
}
