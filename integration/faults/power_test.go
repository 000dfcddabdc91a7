package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/log"
	"rutter/projections"
	"rutter/raftstore"
)

// storeEnv, if set, makes this test binary a store that writes and then kills
// itself, traced by strace: FOLDER STAGE ROUND.
const storeEnv = "RUTTER_FAULTS_STORE"

// wires connects stores of one process by names that outlive it.
type wires struct {
	mu sync.Mutex // protects at
	at map[string]string
}

// Listen implements raftstore.Network.
func (w *wires) Listen(name string) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		w.mu.Lock()
		w.at[name] = l.Addr().String()
		w.mu.Unlock()
	}
	return l, err
}

// Dial implements raftstore.Network.
func (w *wires) Dial(ctx context.Context, name string) (net.Conn, error) {
	w.mu.Lock()
	address, ok := w.at[name]
	w.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("%s does not listen", name)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// storeConfig is that of server n of a small and hasty store: everything that a
// store does to its files happens within a second.
func storeConfig(w *wires, dir string, n int) raftstore.Config {
	c := raftstore.Config{
		ID: fmt.Sprintf("s%d", n), Dir: filepath.Join(dir, fmt.Sprintf("s%d", n)), Listen: fmt.Sprintf("s%d:1", n), Advertise: fmt.Sprintf("s%d:1", n),
		Network: w, Logger: slog.New(slog.DiscardHandler), Bootstrap: n == 1,
		Heartbeat: 100 * time.Millisecond, CommitTimeout: 2 * time.Millisecond,
		MarkerEvery: 20 * time.Millisecond, MarkerEntries: 8, TrailingLogs: 4,
		PersistDelay: 4 * time.Millisecond, RingEntries: 8, MapBytes: 64 << 20,
		UpkeepEvery: 20 * time.Millisecond, CheckpointEvents: 12,
	}
	if n > 1 {
		c.Join = []string{"s1:1"}
	}
	return c
}

// stage is a part of a store's life.
type stage string

const (
	stageAlone   stage = "alone"   // first start, writes, markers
	stageCompact stage = "compact" // the same with checkpoints and a floor that moves
	stageJoin    stage = "join"    // a second server gets an image
)

// storeChild is the traced store: it prints "ID/FIRST" for each acknowledged
// change, and kills itself.
func storeChild(args []string) error {
	dir, at, round := args[0], stage(args[1]), args[2]
	w := &wires{at: make(map[string]string)}
	ctx := context.Background()
	first, err := runStore(ctx, storeConfig(w, dir, 1))
	if err != nil {
		return err
	}
	if at != stageJoin || round == "0" { // later both are needed
		err = writeTags(ctx, first, round+"a")
	}
	if err == nil && at == stageCompact {
		err = first.SetRetention(ctx, raftstore.Retention{Events: 20, Bytes: 8 << 20})
	}
	if err == nil && at == stageJoin {
		err = joinStore(ctx, storeConfig(w, dir, 2))
	}
	if err != nil {
		return err
	}
	if err := writeTags(ctx, first, round+"b"); err != nil {
		return err
	}
	time.Sleep(60 * time.Millisecond) // what is done beside
	if err := writeTags(ctx, first, round+"c"); err != nil {
		return err
	}
	// A call that the end cuts short would be missing in the trace, though it
	// may have done its work: wait until there is none.
	time.Sleep(300 * time.Millisecond)
	return syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
}

// joinStore starts a server and waits until it has caught up.
func joinStore(ctx context.Context, cfg raftstore.Config) error {
	s, err := runStore(ctx, cfg)
	for err == nil && s.Ready() != nil {
		time.Sleep(5 * time.Millisecond)
	}
	return err
}

// runStore starts a server that ends with the process.
func runStore(ctx context.Context, cfg raftstore.Config) (*raftstore.Store, error) {
	s, err := raftstore.Open(cfg)
	if err != nil {
		return nil, err
	}
	go func() {
		err := s.Run(ctx)
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}()
	return s, nil
}

// tagWriters write side by side, tagsEach each.
const tagWriters, tagsEach = 3, 8

func writeTags(ctx context.Context, s *raftstore.Store, name string) error {
	failed := make(chan error, tagWriters)
	for w := range tagWriters {
		go func() {
			var err error
			for n := 0; n < tagsEach && err == nil; n++ {
				err = writeTag(ctx, s, fmt.Sprintf("t%s_%d_%d", name, w, n), n%3 == 2)
			}
			failed <- err
		}()
	}
	var errs []error
	for range tagWriters {
		errs = append(errs, <-failed)
	}
	return errors.Join(errs...)
}

// writeTag creates a NIC tag in one change, and deletes it in another if asked.
func writeTag(ctx context.Context, s *raftstore.Store, name string, remove bool) error {
	ops := []log.Op{{Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: name}}}
	if remove {
		ops = append(ops, log.Op{Action: log.Delete, Kind: log.KindNICTag, ID: name})
	}
	for _, op := range ops {
		result, err := s.Propose(ctx, &log.Change{ID: client.NewChangeID(), Ops: []log.Op{op}})
		if err != nil {
			return err
		}
		if result.Refusal != nil {
			return result.Refusal
		}
		fmt.Printf("%s/%d\n", result.ChangeID, result.First)
	}
	return nil
}

// TestPowerLoss traces a store's system calls, cuts the power between two of
// them, makes what a disk may then hold of what was not synced, and starts the
// store on it: everything acknowledged must be there, at its seq, and the state
// must be the fold of the log.
func TestPowerLoss(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace(1): make packages")
	}
	for _, at := range []stage{stageAlone, stageCompact, stageJoin} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var calls []call
			for round := range 2 {
				before := len(calls)
				for _, c := range traceStore(t, strace, dir, at, round) {
					c.began += before
					calls = append(calls, c)
				}
			}
			checkModel(t, dir, calls)
			cutPower(t, dir, calls, at)
		})
	}
}

func traceStore(t *testing.T, strace, dir string, at stage, round int) []call {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command(strace, "-f", "--seccomp-bpf", "-qq", "-y", "-xx", "-s", "8388608", "-e", "signal=none", "-e", "trace="+traced, "-o", out, self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d", storeEnv, dir, at, round))
	said, err := cmd.CombinedOutput()
	if bytes.Contains(said, []byte("PTRACE")) {
		t.Skipf("tracing is forbidden here: %s", said)
	}
	if err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the traced store: %v\n%s", err, said)
	}
	calls, err := readTrace(out)
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

// checkModel compares what the disk's model holds at the end of the trace with
// the files themselves.
func checkModel(t *testing.T, dir string, calls []call) {
	t.Helper()
	d := newDisk(dir)
	for _, c := range calls {
		if _, err := d.apply(c); err != nil {
			t.Fatal(err)
		}
	}
	to := t.TempDir()
	if err := d.image(to, allKept, nil); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		want, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		got, err := os.ReadFile(filepath.Join(to, strings.TrimPrefix(path, dir)))
		if err == nil && !bytes.Equal(got, want) {
			err = fmt.Errorf("%s is not as its writes say: %d bytes, want %d", path, len(got), len(want))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

const (
	// shortCuts and longCuts are about how many images of a stage are started.
	shortCuts, longCuts = 10, 400
	// early calls found the cluster; a long run cuts after each of them.
	early = 60
)

// cutPower starts the store on images of crashes.
func cutPower(t *testing.T, dir string, calls []call, at stage) {
	t.Helper()
	seed := setting(t, "RUTTER_SEED", uint64(time.Now().UnixNano()))
	rng := rand.New(rand.NewPCG(seed, 0))
	long := os.Getenv("RUTTER_LONG") != ""
	points := countPoints(t, dir, calls)
	share := shortCuts / float64(points)
	if long {
		share = longCuts / float64(points)
	}
	d, cuts, point := newDisk(dir), 0, 0
	for i, c := range calls {
		changed, err := d.apply(c)
		if err != nil {
			t.Fatal(err)
		}
		if !changed {
			continue
		}
		point++
		for f := range fortunes {
			if rng.Float64() >= share/float64(fortunes) && (!long || point > early) {
				continue
			}
			cuts++
			if err := cutOnce(t, d, at, f, rng); err != nil {
				t.Fatalf("seed %d: power cut after call %d of %d, %s of %s, %v, %d changes acknowledged: %v", seed, i+1, len(calls), c.name, c.path, f, len(d.acks), err)
			}
		}
	}
	t.Logf("%d cuts at %d points, %d changes acknowledged in all", cuts, points, len(d.acks))
	if cuts < shortCuts/3 {
		t.Errorf("only %d cuts", cuts)
	}
}

// countPoints counts the calls that change what a crash leaves.
func countPoints(t *testing.T, dir string, calls []call) (points int) {
	t.Helper()
	d := newDisk(dir)
	for _, c := range calls {
		changed, err := d.apply(c)
		if err != nil {
			t.Fatal(err)
		}
		if changed {
			points++
		}
	}
	return points
}

// cutOnce starts the store on one image.
func cutOnce(t *testing.T, d *disk, at stage, f fortune, rng *rand.Rand) error {
	t.Helper()
	to, err := os.MkdirTemp(t.TempDir(), "image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(to)
	if err := d.image(to, f, rng); err != nil {
		return err
	}
	return survives(to, d.acks, at)
}

// survives starts the store on an image and compares it with what it had
// acknowledged.
func survives(dir string, acks []string, at stage) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	w := &wires{at: make(map[string]string)}
	var stores []*raftstore.Store
	var running sync.WaitGroup
	defer func() {
		cancel()
		running.Wait()
		for _, s := range stores {
			err = errors.Join(err, s.Close())
		}
	}()
	servers := 1
	if _, missing := os.Stat(filepath.Join(dir, "s2")); at == stageJoin && missing == nil {
		servers = 2
	}
	for n := range servers {
		cfg := storeConfig(w, dir, n+1)
		cfg.UpkeepEvery = time.Hour // the floor stays while the log is read
		s, err := raftstore.Open(cfg)
		if err != nil {
			return err
		}
		stores = append(stores, s)
		running.Go(func() {
			if ended := s.Run(ctx); ctx.Err() == nil {
				err = errors.Join(err, fmt.Errorf("run: %w", ended))
				cancel()
			}
		})
	}
	for _, s := range stores {
		if _, err := s.Consistent(ctx); err != nil {
			return err
		}
		if err := holds(ctx, s, acks); err != nil {
			return err
		}
	}
	return again(ctx, stores[0], acks)
}

// holds compares a store with what was acknowledged, and with its own log.
func holds(ctx context.Context, s *raftstore.Store, acks []string) error {
	floor := s.Floor()
	state := projections.NewState()
	if floor > 0 {
		var err error
		if state, err = s.Past().StateAt(ctx, floor); err != nil {
			return err
		}
	}
	at := make(map[string]bool)
	head := s.Head().Seq
	for next := floor; next < head; {
		entries, err := s.Entries(next, 64)
		if err != nil {
			return err
		}
		for _, e := range entries {
			event, err := e.Event()
			if err != nil {
				return err
			}
			if _, err := state.Apply(e.Seq, event); err != nil {
				return fmt.Errorf("fold the log: %w", err)
			}
			at[fmt.Sprintf("%s/%d", event.ChangeID, e.Seq)] = true
			next = e.Seq
		}
	}
	for _, ack := range acks {
		_, text, _ := strings.Cut(ack, "/")
		seq, err := log.ParseSeq(text)
		if err != nil {
			return err
		}
		if seq > floor && !at[ack] {
			return fmt.Errorf("lost: change %s; floor %d, head %d", ack, floor, head)
		}
	}
	var err error
	s.View(func(v raftstore.View) {
		state.SetTime(v.Time)
		if v.Head.Seq == head && !bytes.Equal(v.State.Dump(), state.Dump()) {
			err = fmt.Errorf("the state at %d is not the fold of the log:\ngot  %s\nwant %s", head, v.State.Dump(), state.Dump())
		}
	})
	return err
}

// changeOf returns the change of writeTag that was acknowledged, as the log has it:
// its id is bound to its content.
func changeOf(s *raftstore.Store, ack string) (*log.Change, error) {
	_, text, _ := strings.Cut(ack, "/")
	seq, err := log.ParseSeq(text)
	if err != nil {
		return nil, err
	}
	entries, err := s.Entries(seq-1, 1)
	if err != nil {
		return nil, err
	}
	event, err := entries[0].Event()
	if err != nil {
		return nil, err
	}
	op := log.Op{Action: log.Delete, Kind: log.KindNICTag, ID: event.ID}
	if event.Action == log.Create {
		op = log.Op{Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: event.ID}}
	}
	return &log.Change{ID: event.ChangeID, Ops: []log.Op{op}}, nil
}

// again sends the last acknowledged change again, which must give its seq, and a
// new one, which must be taken.
func again(ctx context.Context, s *raftstore.Store, acks []string) error {
	if len(acks) > 0 {
		change, err := changeOf(s, acks[len(acks)-1])
		if err != nil {
			return err
		}
		result, err := s.Propose(ctx, change)
		if err != nil {
			return err
		}
		if got := fmt.Sprintf("%s/%d", change.ID, result.First); got != acks[len(acks)-1] || result.Refusal != nil {
			return fmt.Errorf("change %s, sent again: %+v", acks[len(acks)-1], result)
		}
	}
	op := log.Op{Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: "fresh"}}
	result, err := s.Propose(ctx, &log.Change{ID: client.NewChangeID(), Ops: []log.Op{op}})
	if err == nil && result.Refusal != nil {
		err = result.Refusal
	}
	return err
}
