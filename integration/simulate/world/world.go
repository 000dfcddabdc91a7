package world

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rutter/integration/simulate/disk"
	"rutter/integration/simulate/history"
	"rutter/integration/simulate/network"
	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/raftstore"
)

// Options say how a history is run.
type Options struct {
	Log io.Writer // of servers and agents, and of what happens; nil: none
	// Patience is how long simulated time may stand still, in real time, before all goroutines are
	// printed and the process ends: 1 min. How long the whole history takes is not bounded here: it
	// depends on what else the machine does.
	Patience time.Duration
	// Disk has the disks of servers that lose power or room; nil: they are killed instead, and
	// never full.
	Disk *disk.Disk
}

// Report says what a history came to.
type Report struct {
	Failures        []string // empty: all that must hold held
	Coverage        map[string]int
	Simulated, Real time.Duration
	Seen            *seen.Log
}

// world is one history under way.
type world struct {
	h       history.History
	o       Options
	net     *network.Net
	seen    *seen.Log
	folder  string
	members []raftstore.Member
	servers []*server
	nodes   []*node
	ctx     context.Context // of all that clients do; ends with the world
	model   model
	// certificates are those of all; nil: without TLS.
	certificates *certificates
	observe      *observer
	pulse        pulse
	busy         atomic.Bool // kernels take time: since the cluster serves
	listeners    []*listener

	freezing  chan struct{}  // who has put a value here may call synctest.Wait
	operating chan struct{}  // the operator does one thing at a time
	turned    chan struct{}  // an agent began or ended: who waits for the fabric asks now
	zombies   sync.WaitGroup // processes that were killed, and end

	mu       sync.Mutex // protects what follows
	ways     map[[2]string]map[int]network.Link
	killed   int
	backups  []backup
	restores int
	ending   bool
	failures []string
	coverage map[string]int
	last     log.Seq  // of an accepted write
	own      log.UUID // the cluster
	sums     []string // of the servers' states at the end
}

// Run runs a history in a bubble.
func Run(t *testing.T, h history.History, o Options) (report Report) {
	folder, err := disk.Memory("world")
	if err != nil {
		folder, err = os.MkdirTemp("", "world")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	begun := time.Now()
	patience := o.Patience
	if patience == 0 {
		patience = time.Minute
	}
	w := &world{h: h, o: o, folder: folder, seen: new(seen.Log), coverage: map[string]int{}, ways: map[[2]string]map[int]network.Link{}}
	defer w.pulse.watch(patience, h.Seed)() // in real time: it is made outside of the bubble
	synctest.Test(t, func(*testing.T) {
		w.freezing, w.operating, w.turned = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
		w.seen.Watch(w.notice)
		w.setDate()
		w.observe = &observer{world: w, heap: collected()}
		at := time.Now()
		w.live()
		report = Report{Failures: w.failures, Coverage: w.coverage, Simulated: time.Since(at), Seen: w.seen}
		lastDate = time.Now()
	})
	report.Real = time.Since(begun)
	return report
}

// lastDate is when the bubble before ended. Change ids count up in the process (package
// uuid keeps the last one's time), so each bubble begins later.
var lastDate = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

func (w *world) setDate() { time.Sleep(time.Until(lastDate.Add(time.Hour))) }

func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = append(w.failures, fmt.Sprintf(format, args...))
}

func (w *world) count(what string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.coverage[what] += n
}

// notice keeps what the world itself uses of what is seen.
func (w *world) notice(r seen.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e := r.Event.(type) {
	case seen.Write:
		if e.Outcome == seen.Accepted {
			w.last = max(w.last, e.Result.Last)
		}
	case seen.Restored:
		w.last = e.To.Seq
		w.restores++
	case seen.Process:
		if strings.HasPrefix(r.Who, "cn") {
			select {
			case w.turned <- struct{}{}:
			default:
			}
		}
	case seen.Server:
		if !e.Head.Cluster.IsZero() {
			w.own = e.Head.Cluster
		}
	}
	if w.o.Log != nil {
		_, server := r.Event.(seen.Server)
		_, state := r.Event.(seen.State)
		if !server && !state {
			fmt.Fprintf(w.o.Log, "%10.3f %-4s %T %.300s\n", r.At.Seconds(), r.Who, r.Event, strings.ReplaceAll(fmt.Sprintf("%+v", r.Event), "\n", " "))
		}
	}
}

func (w *world) lastSeq() log.Seq {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

func (w *world) cluster() log.UUID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.own
}

// ended: a process was stopped. At the end of the world all are, which is not seen.
func (w *world) ended(who string) {
	if w.ctx.Err() == nil {
		w.seen.Add(who, seen.Process{State: "stopped"})
	}
}

func (w *world) unexpected(who string, err error) {
	countEnd(w, err)
	w.seen.Add(who, seen.Process{State: "failed", Err: fmt.Sprint(err)})
}

// revive starts a program again that ended by itself, as systemd does.
func (w *world) revive(m machine, cause error) {
	w.zombies.Go(func() {
		time.Sleep(2 * time.Second)
		w.mu.Lock()
		ending := w.ending
		w.mu.Unlock()
		if ending || !m.claim() {
			return
		}
		defer m.release()
		w.count("restarted", 1)
		if err := w.begin(m); err != nil { // docs/deploy.md: then treat the host as lost
			w.count("replaced after a failure", 1)
			if err := m.replace(); err != nil {
				w.fail("%v, after %v", err, cause)
			}
		}
	})
}

// raftLog is which log of raft servers of a history have.
func raftLog(h history.History) string {
	if h.WAL {
		return raftstore.RaftLogWAL
	}
	return raftstore.RaftLogBolt
}

func (w *world) logger(who string) *slog.Logger {
	if w.o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(w.o.Log, &slog.HandlerOptions{Level: slog.LevelInfo})).With("who", who)
}

// live is the whole life of the world.
func (w *world) live() {
	ctx, cancel := context.WithCancel(context.Background())
	w.ctx = ctx
	w.zombies.Go(func() { w.pulse.beat(ctx) })
	w.net = network.New(w.h.Seed)
	for i := range w.h.Servers {
		s := w.newServer(i)
		w.servers = append(w.servers, s)
		w.members = append(w.members, raftstore.Member{ID: s.name, Address: s.address(peerPort)})
	}
	addReplicas(w)
	for i := range w.h.Agents {
		w.nodes = append(w.nodes, w.newNode(i))
	}
	defer w.end(cancel)
	if err := openCertificates(w); err != nil {
		w.fail("certificates: %v", err)
		return
	}
	if !w.found() {
		return
	}
	if err := w.certificates.recordAll(); err != nil {
		w.fail("certificates: %v", err)
		return
	}
	if err := errors.Join(w.keepOld(), w.certificates.keepOld()); err != nil {
		w.fail("copies of caches and certificates: %v", err)
		return
	}
	w.seen.Begin(time.Now())
	w.busy.Store(true)
	working, rest := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { tallies(working, w) })
	for i := range w.h.Clients {
		work.Go(func() { w.writer(working, i) })
	}
	for i := range 2 {
		work.Go(func() { w.reader(working, i) })
		work.Go(func() { w.waiter(working, i) })
	}
	work.Go(func() { w.follower(working, 0, nil) })
	work.Go(func() { w.follower(working, 1, url.Values{"kind": {"nic"}}) })
	work.Go(func() { w.awaiter(working) })
	work.Go(func() { probe(working, w) })
	work.Go(func() { w.observe.sampler(working) })
	w.useSurfaces(working, &work)
	w.happen()
	w.seen.Add("world", seen.Process{State: "the faults are over"})
	rest()
	work.Wait()
	w.heal()
}

// found starts the cluster, and writes with what each world begins.
func (w *world) found() bool {
	for _, s := range w.servers {
		if err := s.start(); err != nil {
			w.fail("%v", err)
			return false
		}
	}
	api, err := w.client(w.net.Host("operator"), "", 0)
	if err != nil {
		w.fail("%v", err)
		return false
	}
	defer api.Close()
	rnd := w.rand("operator")
	for _, ops := range w.founding() {
		for try := 0; ; try++ {
			e := w.write(w.ctx, "operator", "changes", api.Submit, &log.Change{ID: changeID(rnd), Ops: ops})
			if e.Outcome == seen.Accepted {
				break
			}
			if try == 10 || e.Outcome == seen.Refused {
				w.fail("the cluster cannot be founded: %s", e.Err)
				return false
			}
		}
	}
	for _, n := range w.nodes {
		if err := n.start(); err != nil {
			w.fail("start %s: %v", n.name, err)
			return false
		}
	}
	return true
}

// end stops all that runs.
func (w *world) end(cancel func()) {
	cancel()
	w.mu.Lock()
	w.ending = true
	w.mu.Unlock()
	for _, n := range w.nodes {
		if err := n.stop(); err != nil {
			w.fail("stop %s: %v", n.name, err)
		}
	}
	for _, s := range w.servers {
		if err := s.stop(); err != nil {
			w.fail("stop %s: %v", s.name, err)
		}
	}
	w.zombies.Wait()
	w.net.Close()
}

// pulse shows whether simulated time goes on: it counts the simulated seconds.
type pulse struct{ atomic.Int64 }

// watch ends the process if simulated time stands still for as long as patience, until stop. It is
// called outside of the bubble.
func (p *pulse) watch(patience time.Duration, seed uint64) (stop func()) {
	ended := make(chan struct{})
	go func() {
		const looks = 10
		tick := time.NewTicker(patience / looks)
		defer tick.Stop()
		for at, still := int64(-1), 0; still < looks; {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			if now := p.Load(); now != at {
				at, still = now, 0
			} else {
				still++
			}
		}
		stacks := make([]byte, 16<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		fmt.Fprintf(os.Stderr, "panic: seed %d: simulated time stands still for %v; all goroutines:\n%s\n", seed, patience, stacks)
		os.Exit(2)
	}()
	return func() { close(ended) }
}

// beat counts, until ctx ends.
func (p *pulse) beat(ctx context.Context) {
	for ctx.Err() == nil {
		p.Add(1)
		pause(ctx, time.Second)
	}
}
