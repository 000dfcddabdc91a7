package raftstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	faultdisk "rutter/integration/simulate/disk"
	"rutter/log"
)

// wires are a server's connections, which a power cut ends.
type wires struct {
	loopback
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

var errCut = errors.New("the power is cut")

func (w *wires) keep(conn net.Conn, err error) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && w.cut {
		conn.Close()
		return nil, errCut
	}
	if err == nil {
		w.conns = append(w.conns, conn)
	}
	return conn, err
}

// Dial implements Network.
func (w *wires) Dial(ctx context.Context, address string) (net.Conn, error) {
	return w.keep(w.loopback.Dial(ctx, address))
}

// Listen implements Network.
func (w *wires) Listen(address string) (net.Listener, error) {
	l, err := w.loopback.Listen(address)
	return &wiredListener{l, w}, err
}

type wiredListener struct {
	net.Listener
	wires *wires
}

// Accept implements net.Listener. What comes after the cut is closed at once.
func (l *wiredListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.wires.keep(l.Listener.Accept())
		if !errors.Is(err, errCut) {
			return conn, err
		}
	}
}

func (w *wires) powerCut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	for _, conn := range w.conns {
		conn.Close()
	}
}

// powerBack lets new connections in again.
func (w *wires) powerBack() {
	w.mu.Lock()
	w.cut = false
	w.mu.Unlock()
}

// told is the chain of hashes that any server ever showed to a reader, by seq.
type observed struct {
	mu     sync.Mutex
	hashes map[log.Seq]log.Hash
}

// watch notes what a server shows, until ctx is done or it shows no more.
func (o *observed) watch(ctx context.Context, t *testing.T, s *Store) {
	after := s.Head().Seq
	for ctx.Err() == nil {
		changed := s.Changed()
		entries, err := s.Entries(after, 1000)
		if err != nil {
			return // it has failed
		}
		o.mu.Lock()
		for _, e := range entries {
			after = e.Seq
			if was, ok := o.hashes[e.Seq]; ok && was != e.Hash {
				t.Errorf("%s shows %s at %d, where another server showed %s", s.cfg.ID, e.Hash, e.Seq, was)
			}
			o.hashes[e.Seq] = e.Hash
		}
		o.mu.Unlock()
		if len(entries) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// check looks for everything that was ever told in the log that there is now.
func (o *observed) check(t *testing.T, s *Store) {
	t.Helper()
	entries := all(t, s)
	for seq, hash := range o.hashes {
		if int(seq) > len(entries) {
			t.Errorf("%s ends at %d, and %d was told", s.cfg.ID, len(entries), seq)
		} else if entries[seq-1].Hash != hash {
			t.Errorf("%s has %s at %d, and %s was told", s.cfg.ID, entries[seq-1].Hash, seq, hash)
		}
	}
}

// powerWorld is a cluster whose servers' power is cut again and again.
type powerWorld struct {
	t        *testing.T
	rng      *rand.Rand
	members  []Member
	folders  []string // what is on the disks
	kind     string
	observed observed

	mu    sync.Mutex
	acked map[string]log.Result
	open  map[string]*log.Change // proposed, and their fate is unknown
}

// powered is one server of it, with its disk and its wires.
type powered struct {
	*node
	disk  *faultdisk.Folder
	wires *wires
}

// start starts the servers, each on a fresh mount of its folder.
func (w *powerWorld) start() (servers []*powered) {
	for i, m := range w.members {
		p := &powered{disk: newFaultFSOn(w.t, w.folders[i]), wires: new(wires)}
		p.node = launch(w.t, w.config(m, p.disk.Path()))
		servers = append(servers, p)
	}
	return servers
}

func (w *powerWorld) config(m Member, dir string) Config {
	cfg := testConfig(w.t, m.ID, filepath.Join(dir, "data"))
	cfg.Listen, cfg.InitialMembers, cfg.RaftLog, cfg.MapBytes = m.Address, w.members, w.kind, 1<<28
	cfg.Logger = quietLogger()
	return cfg
}

// write proposes changes at all servers until ctx is done.
func (w *powerWorld) write(ctx context.Context, servers []*powered, round int) {
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("r%d_%d_%d", round, g, i)
				c := tagChange(newID(), name)
				w.mu.Lock()
				w.open[name] = c
				w.mu.Unlock()
				for at := g; ctx.Err() == nil; at++ {
					if w.tried(ctx, servers[at%len(servers)].Store, name, c) {
						break
					}
				}
			}
		})
	}
	wg.Wait()
}

// tried proposes a change once more, and reports whether it was acknowledged.
func (w *powerWorld) tried(ctx context.Context, s *Store, name string, c *log.Change) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	result, err := s.Propose(ctx, c)
	if err != nil {
		_ = s.pause(ctx, s.lead.leaderMoved())
		return false
	}
	if result.Refusal != nil {
		w.t.Errorf("%s refused: %v", name, result.Refusal)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acked[name] = result
	delete(w.open, name)
	return true
}

// cut ends a server with its disk and its wires at once, in any order. What its
// disk was not told to keep is gone in part.
func (p *powered) cut(t *testing.T, rng *rand.Rand) {
	t.Helper()
	if rng.IntN(2) == 0 {
		p.wires.powerCut()
	}
	p.disk.FailAfter(0)
	p.wires.powerCut()
}

// end waits for a server whose power is cut.
func (p *powered) end(t *testing.T, rng *rand.Rand) {
	t.Helper()
	p.cancel()
	p.cancel = nil
	<-p.ended
	_ = p.Close() // its disk is gone
	if err := p.disk.PowerCut(rng.Uint64()); err != nil {
		t.Fatal(err)
	}
	p.disk.Unmount()
}

// round runs the cluster, cuts the power of the leader and of some others at a
// moment, later that of all, and looks at what is left.
func (w *powerWorld) round(round int) {
	t, rng := w.t, w.rng
	servers := w.start()
	var nodes []*node
	for _, p := range servers {
		nodes = append(nodes, p.node)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var work sync.WaitGroup
	for _, n := range nodes {
		work.Go(func() { w.observed.watch(ctx, t, n.Store) })
	}
	leader := leaderOf(t, nodes)
	for _, p := range servers {
		// The leader's disk is mostly the slowest, so that the others have what it lacks.
		if slow := rng.IntN(3); p.node == leader && slow > 0 || slow == 2 {
			p.disk.Slow(time.Duration(1+rng.IntN(3)) * time.Millisecond)
		}
	}
	work.Go(func() { w.write(ctx, servers, round) })
	<-time.After(time.Duration(50+rng.IntN(250)) * time.Millisecond) // the moment is arbitrary
	victims := 1 + rng.IntN(len(servers))
	order := rng.Perm(len(servers))
	for i, at := range order {
		if servers[at].node == leader {
			order[0], order[i] = order[i], order[0]
		}
	}
	for _, at := range order[:victims] {
		servers[at].cut(t, rng)
	}
	if victims <= (len(servers)-1)/2 {
		w.awaitMore(servers[order[victims]].Store)
	}
	for _, at := range order[victims:] {
		servers[at].cut(t, rng)
	}
	cancel()
	for _, p := range servers {
		p.end(t, rng)
	}
	work.Wait()
	w.check(round)
}

// awaitMore waits until those that are left have told more than there was.
func (w *powerWorld) awaitMore(s *Store) {
	if err := s.WaitSeq(patience(w.t), s.Head().Seq+10); err != nil {
		w.t.Errorf("without the leader nothing is written: %v", err)
	}
}

// check starts the servers from what their disks kept.
func (w *powerWorld) check(round int) {
	t := w.t
	var nodes []*node
	for i, m := range w.members {
		nodes = append(nodes, launch(t, w.config(m, w.folders[i])))
	}
	for name, c := range w.open {
		w.acked[name] = must(t, nodes[round%len(nodes)], c)
	}
	clear(w.open)
	checkSame(t, nodes)
	for _, n := range nodes {
		checkAcked(t, n.Store, w.acked)
		w.observed.check(t, n.Store)
		n.halt(t)
	}
}

// TestPowerCutOfLeader cuts the power of a leader at arbitrary moments, and that of
// others with it. Nothing that was acknowledged or shown to a reader on any server
// is lost, whatever the leader had counted before its disk had it.
func TestPowerCutOfLeader(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	rounds, seed := 2, rand.Uint64()
	if long() {
		rounds = 40
	}
	for i, kind := range []string{RaftLogBolt, RaftLogWAL, RaftLogBolt} {
		count := 3
		if i == 2 {
			count = 5
		}
		t.Run(fmt.Sprintf("%s of %d", kind, count), func(t *testing.T) {
			t.Logf("seed %d", seed)
			w := &powerWorld{
				t: t, rng: rand.New(rand.NewPCG(seed, uint64(i))), kind: kind,
				observed: observed{hashes: make(map[log.Seq]log.Hash)},
				acked:    make(map[string]log.Result), open: make(map[string]*log.Change),
			}
			for i := range count {
				w.members = append(w.members, Member{ID: fmt.Sprintf("s%d", i+1), Address: freeAddress(t)})
				w.folders = append(w.folders, fastDir(t))
			}
			for round := range rounds {
				w.round(round)
				if t.Failed() {
					t.Fatalf("round %d", round)
				}
			}
			t.Logf("%d changes acknowledged, %d entries told", len(w.acked), len(w.observed.hashes))
		})
	}
}

// heldDisk is raft's log of a server, whose writes the test can hold and lose.
type heldDisk struct {
	raft.LogStore
	mu   sync.Mutex
	held chan struct{} // closed when the writes go on; nil: they are not held
	lost bool
}

// StoreLogs implements raft.LogStore.
func (d *heldDisk) StoreLogs(entries []*raft.Log) error {
	d.mu.Lock()
	held := d.held
	d.mu.Unlock()
	if held != nil {
		<-held
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost {
		return errCut
	}
	return d.LogStore.StoreLogs(entries)
}

func (d *heldDisk) hold() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = make(chan struct{})
}

// release lets the writes go on, or fail if the power is cut.
func (d *heldDisk) release(lost bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = lost
	if d.held != nil {
		close(d.held)
		d.held = nil
	}
}

// heldNode is a server with a held disk and wires.
type heldNode struct {
	*node
	disk  *heldDisk
	wires *wires
}

func launchHeld(t *testing.T, cfg Config) *heldNode {
	t.Helper()
	h := &heldNode{wires: new(wires)}
	cfg.Network, cfg.Logger = h.wires, quietLogger()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.disk = &heldDisk{LogStore: s.raftLog.Log.LogStore}
	s.raftLog.Log.LogStore = h.disk // Run was not called: no other goroutine reads it
	h.node = launched(t, s)
	return h
}

// cut ends the server; what its disk was to write is lost.
func (h *heldNode) cut() {
	h.wires.powerCut()
	h.disk.release(true)
	h.cancel()
	h.cancel = nil
	<-h.ended
	_ = h.Close()
}

// TestNothingOutBeforeLeadersDisk holds the write of the leader's disk, and that of none,
// one or both followers'. No answer comes, no server applies the entry, and after a power
// cut of all whose write was held the change can be made again by its id and stands once.
func TestNothingOutBeforeLeadersDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	for _, test := range []struct {
		name string
		held int // followers
	}{{"on both followers' disks", 0}, {"on one follower's disk", 1}, {"on no disk", 2}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			holdLeader(t, test.held)
		})
	}
}

func holdLeader(t *testing.T, held int) {
	dir := t.TempDir()
	var members []Member
	for i := range 3 {
		members = append(members, Member{ID: fmt.Sprintf("s%d", i+1), Address: freeAddress(t)})
	}
	var servers []*heldNode
	var nodes []*node
	for _, m := range members {
		cfg := testConfig(t, m.ID, filepath.Join(dir, m.ID))
		cfg.Listen, cfg.InitialMembers = m.Address, members
		cfg.Heartbeat = time.Second      // a slow machine is not to elect another one
		cfg.DiskStall = 50 * time.Second // nor a held disk: see TestLeaderDiskHangs
		servers = append(servers, launchHeld(t, cfg))
		nodes = append(nodes, servers[len(servers)-1].node)
	}
	must(t, nodes[0], tagChange(newID(), "before"))
	lead := leaderOf(t, nodes)
	for i, h := range servers {
		if h.node == lead {
			servers[0], servers[i] = servers[i], servers[0]
		}
	}
	leader, followers := servers[0], servers[1:]
	if seq := leader.Head().Seq; followers[0].WaitSeq(patience(t), seq) != nil || followers[1].WaitSeq(patience(t), seq) != nil {
		t.Fatal("the followers do not follow")
	}
	before := leader.Head()
	leader.disk.hold()
	for _, h := range followers[:held] {
		h.disk.hold()
	}
	c := tagChange(newID(), "held")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		_, err := leader.Propose(ctx, c)
		answered <- err
	}()
	awaitHeld(t, leader, followers, held)
	<-time.After(20 * leader.cfg.CommitTimeout) // what must not happen would happen now
	for _, h := range servers {
		if h.Head() != before {
			t.Errorf("%s is at %s, before the leader's disk has more than %s", h.cfg.ID, h.Head(), before)
		}
	}
	if len(answered) > 0 {
		t.Errorf("answered: %v", <-answered)
	}
	cancel()
	cutAndCompare(t, servers, held, c)
}

// awaitHeld waits until the entry is where it can get to: raft holds it for
// committed if a follower has it.
func awaitHeld(t *testing.T, leader *heldNode, followers []*heldNode, held int) {
	t.Helper()
	var index uint64
	until(t, leader.node, "the leader has the entry early", func() bool {
		const all = math.MaxUint64
		if onDisk := leader.raftLog.Bound(all); onDisk < all {
			index = onDisk + 1
		}
		return index > 0
	})
	for _, h := range followers[held:] {
		until(t, h.node, "a follower has the entry", func() bool {
			last, err := h.raftLog.LastIndex()
			return err == nil && last >= index
		})
	}
	if held < len(followers) {
		until(t, leader.node, "raft takes the entry for committed", func() bool { return leader.raft.Load().CommitIndex() >= index })
	}
	if got := leader.Status().Commit; got >= index {
		t.Errorf("Status shows commit %d, and %d is not on the leader's disk", got, index)
	}
}

// cutAndCompare cuts the power of all whose write is held. Those then lead that lack the
// entry, if there are such that can, and the servers that have it join later.
func cutAndCompare(t *testing.T, servers []*heldNode, held int, c *log.Change) {
	t.Helper()
	for _, h := range servers[:1+held] {
		h.cut()
	}
	nodes := make([]*node, len(servers))
	late := len(servers) // who joins late
	for i, h := range servers {
		nodes[i] = h.node
	}
	if held == 1 {
		late = 2
		nodes[late].halt(t)
	}
	if held > 0 {
		for i := range nodes[:1+held] {
			nodes[i] = heldAgain(t, nodes[i])
		}
	}
	must(t, nodes[1], tagChange(newID(), "after"))
	first := must(t, nodes[1], c)
	if again := must(t, nodes[1], c); again.First != first.First {
		t.Errorf("the change is at %d, and at %d when it is asked for again", first.First, again.First)
	}
	if held == 0 {
		nodes[0] = heldAgain(t, nodes[0])
	}
	if late < len(nodes) {
		nodes[late] = heldAgain(t, nodes[late])
	}
	checkSame(t, nodes)
	for _, n := range nodes {
		checkAcked(t, n.Store, map[string]log.Result{"held": first})
	}
}

// heldAgain starts a server from its folder, on plain TCP.
func heldAgain(t *testing.T, n *node) *node {
	t.Helper()
	n.cfg.Network = loopback{}
	return n.again(t)
}
