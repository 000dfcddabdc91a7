package raftstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	faultdisk "rutter/integration/simulate/disk"
	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/internal/window"
)

func TestMain(m *testing.M) {
	if faultdisk.Serve() || crashChild() {
		return
	}
	goleak.VerifyTestMain(m)
}

// node is one server of a test's cluster.
type node struct {
	*Store
	cfg    Config
	cancel context.CancelFunc
	ended  chan error
}

// testConfig has short timeouts, so that elections take tens of milliseconds.
func testConfig(t testing.TB, id, dir string) Config {
	return Config{
		ID: id, Dir: dir, Listen: "127.0.0.1:0", Network: loopback{},
		Logger:    slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Heartbeat: 150 * time.Millisecond, CommitTimeout: 5 * time.Millisecond,
		MarkerEvery: 50 * time.Millisecond, MarkerEntries: 16, TrailingLogs: 64,
		MapBytes: 1 << 30,
	}
}

// loopback is plain TCP between servers of this process.
type loopback struct{ tcp }

// Listen implements Network. It waits until a port is free that a halted server had: a child
// process that another test starts meanwhile has every listener until its exec.
func (n loopback) Listen(address string) (net.Listener, error) {
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		l, err := n.tcp.Listen(address)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Since(begun) > time.Minute {
			return l, err
		}
	}
}

// testWriter sends logs to the test, until it ends.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Helper()
	w.t.Log(string(p[:len(p)-1]))
	return len(p), nil
}

// launch opens and runs a server.
func launch(t testing.TB, cfg Config) *node {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatalf("open %s: %v", cfg.ID, err)
	}
	n := launched(t, s)
	n.cfg = cfg
	return n
}

// launched runs a server that was opened.
func launched(t testing.TB, s *Store) *node {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n := &node{Store: s, cfg: s.cfg, cancel: cancel, ended: make(chan error, 1)}
	go func() { n.ended <- s.Run(ctx) }()
	t.Cleanup(func() { n.halt(t) })
	return n
}

// halt stops the server in order; a second time does nothing.
func (n *node) halt(t testing.TB) {
	t.Helper()
	if n.cancel == nil {
		return
	}
	n.cancel()
	n.cancel = nil
	if err := <-n.ended; err != nil {
		t.Errorf("run %s: %v", n.cfg.ID, err)
	}
	if err := n.Close(); err != nil {
		t.Errorf("close %s: %v", n.cfg.ID, err)
	}
}

// again starts the halted server from its folder.
func (n *node) again(t testing.TB) *node {
	t.Helper()
	n.cfg.Listen = n.Address()
	return launch(t, n.cfg)
}

// ownLoopback is a loopback address for this process alone: a server that a test halts is
// to get its port again, and the tests of other packages run meanwhile.
var ownLoopback = func() string {
	pid := os.Getpid() // below 1<<22
	return net.IPv4(127, byte(1+pid>>16), byte(pid>>8), byte(pid)).String()
}()

// freeAddress returns a loopback address on which no process listens now.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 1000 {
		// Below net.ipv4.ip_local_port_range, of which connections take theirs: those of
		// the tests beside this one would be in the way when the server listens.
		address := fmt.Sprintf("%s:%d", ownLoopback, 20000+rand.IntN(12000))
		if _, taken := handedOut.LoadOrStore(address, true); taken {
			continue
		}
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
	t.Fatal("no free port from 20000 to 31999")
	return ""
}

// handedOut are the addresses that freeAddress gave.
var handedOut sync.Map

// three starts a cluster of three, each with the same list of members.
func three(t testing.TB, tweak func(*Config)) []*node {
	t.Helper()
	dir := t.TempDir()
	var members []Member
	for i := range 3 {
		members = append(members, Member{ID: fmt.Sprintf("s%d", i+1), Address: freeAddress(t)})
	}
	var nodes []*node
	for _, m := range members {
		cfg := testConfig(t, m.ID, filepath.Join(dir, m.ID))
		cfg.Listen, cfg.InitialMembers = m.Address, members
		if tweak != nil {
			tweak(&cfg)
		}
		nodes = append(nodes, launch(t, cfg))
	}
	return nodes
}

// one starts a cluster of one.
func one(t testing.TB, tweak func(*Config)) *node {
	t.Helper()
	cfg := testConfig(t, "s1", filepath.Join(t.TempDir(), "s1"))
	cfg.Bootstrap = true
	if tweak != nil {
		tweak(&cfg)
	}
	return launch(t, cfg)
}

// patience is how long a test waits for what must happen. It is many times what a quiet
// machine takes: heartbeats of 150 ms come late on a busy one, and leaders change.
func patience(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// leaderOf waits for a leader that takes changes.
func leaderOf(t testing.TB, nodes []*node) *node {
	t.Helper()
	for ctx := patience(t); ctx.Err() == nil; {
		for _, n := range nodes {
			if n.cancel != nil && n.lead.leading() {
				return n
			}
		}
		_ = nodes[0].pause(ctx, nil)
	}
	t.Fatal("no leader")
	return nil
}

// newID returns a change id of now.
func newID() log.UUID { return window.NewID(time.Now()) }

// tagChange creates a NIC tag.
func tagChange(id log.UUID, name string) *log.Change {
	return &log.Change{ID: id, Actor: "test", Ops: []log.Op{tagOp(name)}}
}

func tagOp(name string) log.Op {
	return log.Op{Action: log.Create, Kind: log.KindNICTag, Set: []string{"mtu", "name"}, Object: &log.NICTag{Name: name, MTU: 1500}}
}

// must proposes c and fails the test unless it is accepted.
func must(t testing.TB, n *node, c *log.Change) log.Result {
	t.Helper()
	result, err := n.Propose(patience(t), c)
	if err != nil {
		t.Fatalf("propose at %s: %v", n.cfg.ID, err)
	}
	if result.Refusal != nil {
		t.Fatalf("propose at %s: refused: %v", n.cfg.ID, result.Refusal)
	}
	return result
}

// all reads the whole log of a server, in pieces, and checks order and chain.
func all(t testing.TB, s *Store) []log.Entry {
	t.Helper()
	var entries []log.Entry
	var hash log.Hash
	for {
		var after log.Seq
		if len(entries) > 0 {
			after = entries[len(entries)-1].Seq
		}
		more, err := s.Entries(after, 1+rand.IntN(100))
		if err != nil {
			t.Fatalf("entries after %d: %v", after, err)
		}
		if len(more) == 0 {
			return entries
		}
		for _, e := range more {
			after++
			hash = hash.Next(after, e.Bytes)
			if e.Seq != after || e.Hash != hash {
				t.Fatalf("entry %d with hash %s, want %d with %s", e.Seq, e.Hash, after, hash)
			}
		}
		entries = append(entries, more...)
	}
}

// checkFold compares the state with the fold of the log.
func checkFold(t testing.TB, s *Store) {
	t.Helper()
	state := projections.NewState()
	for _, e := range all(t, s) {
		event, err := e.Event()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := state.Apply(e.Seq, event); err != nil {
			t.Fatal(err)
		}
	}
	s.View(func(v View) {
		state.SetTime(v.Time)
		if got, want := string(v.State.Dump()), string(state.Dump()); got != want {
			t.Errorf("state is not the fold of the log:\ngot  %s\nwant %s", got, want)
		}
	})
}

// checkSame waits until the servers stand at the same seq and compares them.
func checkSame(t testing.TB, nodes []*node) {
	t.Helper()
	seq, err := nodes[0].Consistent(patience(t))
	if err != nil {
		t.Fatalf("consistent: %v", err)
	}
	var want string
	for i, n := range nodes {
		if err := n.WaitSeq(patience(t), seq); err != nil {
			t.Fatalf("%s: %v", n.cfg.ID, err)
		}
		checkFold(t, n.Store)
		got := n.Head().String()
		if i == 0 {
			want = got
		} else if got != want {
			t.Errorf("%s stands at %s, %s at %s", n.cfg.ID, got, nodes[0].cfg.ID, want)
		}
	}
}

// writers propose tags from several goroutines until stop; they return what was
// acknowledged, by name.
func writers(t testing.TB, count int, stop <-chan struct{}, pick func(i int) *node) func() map[string]log.Result {
	var wg sync.WaitGroup
	var mu sync.Mutex
	acked := make(map[string]log.Result)
	for w := range count {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("w%d_%d", w, i)
				c := tagChange(newID(), name)
				for {
					ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
					result, err := pick(w+i).Propose(ctx, c)
					cancel()
					if err == nil && result.Refusal != nil {
						t.Errorf("%s refused: %v", name, result.Refusal)
						return
					}
					if err == nil {
						mu.Lock()
						acked[name] = result
						mu.Unlock()
						break
					}
					select {
					case <-stop:
						return
					default:
					}
					i++ // another server
					name = c.Ops[0].Object.ID()
				}
			}
		})
	}
	return func() map[string]log.Result {
		wg.Wait()
		return acked
	}
}

// checkAcked looks for each acknowledged change at its place, once.
func checkAcked(t testing.TB, s *Store, acked map[string]log.Result) {
	t.Helper()
	at := make(map[string]log.Seq)
	for _, e := range all(t, s) {
		event, err := e.Event()
		if err != nil {
			t.Fatal(err)
		}
		if at[event.ID] != 0 {
			t.Errorf("%s stands twice, at %d and %d", event.ID, at[event.ID], e.Seq)
		}
		at[event.ID] = e.Seq
	}
	for name, result := range acked {
		if at[name] != result.First {
			t.Errorf("%s was acknowledged at %d, and stands at %d (0: lost)", name, result.First, at[name])
		}
	}
}
