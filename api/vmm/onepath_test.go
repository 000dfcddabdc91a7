package vmm

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/log/feed"
)

// real is a VMM as its CN knows it, with all that it ever was.
type real struct {
	id, vm   log.UUID
	history  []Runtime
	sides    []Migration // of the migration to it, if there is one
	recorded uint64
}

func (r *real) now() Runtime { return r.history[len(r.history)-1] }

func (r *real) final() bool {
	return r.now().State == stateFailed || r.now().State == stateDestroyed
}

// node is a CN of the property test: what it keeps on disk outlives its
// connection and its process.
type node struct {
	world *world
	id    log.UUID
	old   bool // it serves only version 1.0.0

	mu     sync.Mutex // protects what follows
	vmms   map[log.UUID]*real
	told   map[log.UUID]*real // all that it ever had
	line   *Conn              // nil: it is cut off
	server int                // of line
}

// world is three servers, some CNs, and the ways between them, on which
// anything is late, lost, doubled or overtaken.
type world struct {
	random  *rand.Rand
	mu      sync.Mutex // protects what follows, and random
	calm    bool       // nothing is lost any more
	leader  int
	all     []*Service
	central *central
	nodes   []*node
}

func (w *world) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

// lost is true one time in n, until calm.
func (w *world) lost(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.calm && w.random.IntN(n) == 0
}

func (w *world) delay() { time.Sleep(time.Duration(w.draw(200)) * time.Millisecond) }

// worldPeers is a server's way to the others.
type worldPeers struct {
	w    *world
	self int
}

func (p worldPeers) Self() string             { return fmt.Sprint(p.self) }
func (p worldPeers) Address(id string) string { return id }
func (p worldPeers) Leading() bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.w.leader == p.self
}

func (p worldPeers) Where(_ context.Context, cn log.UUID) (string, error) {
	if p.w.lost(5) {
		return "", errLost
	}
	for _, n := range p.w.nodes {
		if n.id == cn {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.line != nil {
				return fmt.Sprint(n.server), nil
			}
		}
	}
	return "", nil
}

func (p worldPeers) AskPeer(ctx context.Context, address string, b []byte) ([]byte, error) {
	var i int
	if _, err := fmt.Sscan(address, &i); err != nil {
		return nil, err
	}
	p.w.delay()
	if p.w.lost(5) {
		return nil, errLost
	}
	p.w.mu.Lock()
	s := p.w.all[i]
	p.w.mu.Unlock()
	answer, err := s.AnswerPeer(ctx, b)
	if p.w.lost(5) {
		return nil, errLost
	}
	return answer, err
}

// observe is a new state of a VMM, and a ring for it, or several, or none.
func (n *node) observe(r *real, state, reason string) {
	r.history = append(r.history, Runtime{State: state, Gen: r.now().Gen + 1, Updated: time.Now(), Reason: reason})
	if len(r.sides) > 0 && n.world.draw(2) == 0 {
		last := r.sides[len(r.sides)-1]
		r.sides = append(r.sides, Migration{ID: last.ID, State: []string{"pending", "in_progress", "completed"}[n.world.draw(3)], Gen: last.Gen + 1, Updated: time.Now()})
	}
	for range n.world.draw(3) {
		n.ring(r.id)
	}
}

// ring rings on the connection, or at any server. The caller holds the lock.
func (n *node) ring(id log.UUID) {
	line := n.line
	go func() {
		n.world.delay()
		if n.world.lost(4) {
			return
		}
		if line != nil && n.world.draw(2) == 0 {
			line.Ring(&feed.Ring{VMMs: []log.UUID{id}})
			return
		}
		i := n.world.draw(3)
		n.world.mu.Lock()
		s := n.world.all[i]
		n.world.mu.Unlock()
		_ = s.Ring(id, n.id)
	}()
}

// connect connects the CN to a server; it then rings for what is not recorded.
func (n *node) connect(server int) {
	n.world.mu.Lock()
	s := n.world.all[server]
	n.world.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	var line *Conn
	line = s.Connect(n.id, true, func(m *feed.Request) error {
		go func() {
			n.world.delay()
			if n.world.lost(6) {
				return
			}
			answer := n.answer(m)
			if n.world.draw(6) == 0 {
				_ = n.answer(m) // it came twice
			}
			n.world.delay()
			if !n.world.lost(6) {
				line.Answer(answer)
			}
		}()
		return nil
	})
	n.line, n.server = line, server
	n.ringAgain()
}

// ringAgain rings for what is not recorded, as far as the CN knows. An agent does so
// until nothing is left. The caller holds the lock.
func (n *node) ringAgain() {
	for _, id := range slices.SortedFunc(maps.Keys(n.vmms), log.UUID.Compare) {
		if r := n.vmms[id]; r.recorded < r.now().Gen {
			n.ring(id)
		}
	}
}

func (n *node) cut() {
	n.mu.Lock()
	line := n.line
	n.line = nil
	n.mu.Unlock()
	if line != nil {
		line.Close()
	}
}

// answer is the CN's VMM service.
func (n *node) answer(m *feed.Request) *feed.Response {
	n.mu.Lock()
	defer n.mu.Unlock()
	reply := func(status uint16, v any) *feed.Response {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return &feed.Response{Number: m.Number, Status: status, Body: b}
	}
	if n.old && m.Version != versionOld {
		return reply(400, map[string]string{"error_code": "InvalidRequest"})
	}
	text, rest, _ := strings.Cut(strings.TrimPrefix(m.Path, "/vmms/"), "/")
	id, err := log.ParseUUID(text)
	if err != nil {
		panic(err)
	}
	r := n.vmms[id]
	if r == nil {
		return reply(404, map[string]string{"error_code": "NO_SUCH_INSTANCE"})
	}
	state := func() *State {
		st := &State{VMM: r.now()}
		if m.Version == versionNow {
			st.InstanceID = r.vm
		} else {
			st.VMM.Reason = ""
		}
		if len(r.sides) > 0 {
			st.MigrationIn = &r.sides[len(r.sides)-1]
		}
		return st
	}
	switch {
	case rest == "recorded":
		var in struct{ Gen uint64 }
		if json.Unmarshal(m.Body, &in) == nil && in.Gen > r.recorded && in.Gen <= r.now().Gen {
			if r.recorded = in.Gen; r.final() && in.Gen == r.now().Gen {
				delete(n.vmms, id)
			}
		}
		return reply(200, struct{}{})
	case m.Method == "GET":
		return reply(200, state())
	case r.final():
		return reply(410, map[string]string{"error_code": "NO_SUCH_INSTANCE"})
	case m.Method == "DELETE":
		n.observe(r, stateDestroyed, "")
	default:
		n.observe(r, []string{"running", "stopping", "rebooting"}[n.world.draw(3)], "")
	}
	return reply(200, map[string]any{"updated_runtime": state()})
}

// All that happens to a VMM is recorded by one path: whatever is lost, late,
// doubled or started anew, the log has nothing that was not so, nothing in
// another order, and the last state in the end.
func TestOnePath(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		var failure string
		synctest.Test(t, func(*testing.T) { failure = play(seed) })
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}

// play is one history; the failure is "" if all was well.
func play(seed uint64) string {
	w := &world{random: rand.New(rand.NewPCG(seed, 1)), central: newCentral()}
	w.central.lose = func() (before, after bool) { return w.lost(8), w.lost(8) }
	ctx, cancel := context.WithCancel(context.Background())
	stops := make([]func(), 3)
	followers := make([]*follower, 3)
	var crawling sync.WaitGroup
	for i := range followers {
		followers[i] = newFollower(w.central)
		followers[i].lag = func() time.Duration { return time.Duration(w.draw(300)) * time.Millisecond }
		random := rand.New(rand.NewPCG(seed, uint64(i)+2))
		crawling.Go(func() { followers[i].crawl(ctx, random) })
		w.all = append(w.all, nil)
	}
	start := func(i int) {
		s, err := New(Config{Store: followers[i], NewID: newID, Peers: worldPeers{w, i}})
		if err != nil {
			panic(err)
		}
		w.mu.Lock()
		w.all[i] = s
		w.mu.Unlock()
		stops[i] = run(s)
	}
	for i := range stops {
		start(i)
	}
	for i := range 3 {
		n := &node{world: w, id: testUUID(10 + i), old: i == 2, vmms: map[log.UUID]*real{}, told: map[log.UUID]*real{}}
		w.nodes = append(w.nodes, n)
	}
	for i, n := range w.nodes {
		n.connect(i)
	}
	for range 60 {
		w.step(start, stops)
		time.Sleep(time.Duration(w.draw(500)) * time.Millisecond)
	}
	for _, n := range w.nodes {
		w.call(n) // on its way when the CN connects anew
	}
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	for _, n := range w.nodes {
		n.cut()
		n.connect(w.draw(3))
	}
	for range 4 { // a ring may find a server that is about to give up an earlier one: agents ring on
		time.Sleep(30 * time.Second)
		w.ringAgain()
	}
	time.Sleep(2 * time.Minute)
	failure := w.judge()
	if failure == "" { // an end that did not ring, found by a call: its CN rings again
		w.ringAgain()
		time.Sleep(time.Minute)
		failure = w.judgeForgotten()
	}
	for _, stop := range stops {
		stop()
	}
	for _, n := range w.nodes {
		n.cut()
	}
	cancel()
	crawling.Wait()
	time.Sleep(time.Minute) // what was on its way
	return failure
}

// ringAgain has each CN ring for what is not recorded, as agents do until nothing is left.
func (w *world) ringAgain() {
	for _, n := range w.nodes {
		n.mu.Lock()
		n.ringAgain()
		n.mu.Unlock()
	}
}

// step is one thing that happens.
func (w *world) step(start func(int), stops []func()) {
	n := w.nodes[w.draw(3)]
	switch w.draw(12) {
	case 0: // a server is started anew, and its CNs go elsewhere
		i := w.draw(3)
		stops[i]()
		for _, n := range w.nodes {
			if n.server == i {
				n.cut()
			}
		}
		start(i)
	case 1:
		leader := w.draw(3)
		w.mu.Lock()
		w.leader = leader
		w.mu.Unlock()
	case 2:
		n.cut()
	case 3, 4: // also while it has a connection: the older one is still there
		n.connect(w.draw(3))
	case 5, 6:
		n.create(w)
	case 7:
		w.call(n)
	default:
		n.mu.Lock()
		for _, r := range n.vmms {
			if r.final() || w.draw(2) == 0 {
				continue
			}
			state := []string{"running", "stopping", "rebooting", "migrating", stateFailed, stateDestroyed}[w.draw(6)]
			n.observe(r, state, map[bool]string{true: "it crashed"}[state == stateFailed])
		}
		n.mu.Unlock()
	}
}

// create makes a VMM: the log knows it first, or hears of it from its CN.
func (n *node) create(w *world) {
	n.mu.Lock()
	defer n.mu.Unlock()
	number := w.draw(1 << 30)
	r := &real{id: testUUID(1<<32 + number), vm: testUUID(1<<33 + number), history: []Runtime{{State: stateStarting, Gen: 1, Updated: time.Now()}}}
	if w.draw(3) == 0 {
		r.sides = []Migration{{ID: testUUID(1<<34 + number), State: "pending", Gen: 1, Updated: time.Now()}}
	}
	n.vmms[r.id], n.told[r.id] = r, r
	if n.old || w.draw(2) == 0 {
		id, _ := newID()
		change := &log.Change{ID: id, Ops: []log.Op{createVMM(claim{vmm: r.id, cn: n.id, state: State{VMM: Runtime{State: stateCreating, Gen: 1}, InstanceID: r.vm}})}}
		for {
			if _, err := w.central.propose(change); err == nil {
				break
			}
		}
	}
	n.ring(r.id)
}

// call changes the state of a VMM from any server, twice at once.
func (w *world) call(n *node) {
	n.mu.Lock()
	ids := slices.Collect(maps.Keys(n.told))
	n.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	id := ids[w.draw(len(ids))]
	for range 2 {
		i := w.draw(3)
		w.mu.Lock()
		s := w.all[i]
		w.mu.Unlock()
		unregister := w.draw(3) == 0
		go func() {
			if unregister {
				_, _ = s.Unregister(context.Background(), id, "someone")
				return
			}
			_, _ = s.SetState(context.Background(), id, []byte(`{"state":{"type":"running"}}`), "someone")
		}()
	}
}

// judge compares what is recorded with what was.
func (w *world) judge() string {
	for _, n := range w.nodes {
		n.mu.Lock()
		defer n.mu.Unlock()
		for id, r := range n.told {
			if failure := w.judgeOne(n.old, id, r); failure != "" {
				return failure
			}
		}
	}
	return ""
}

// judgeForgotten reports a VMM whose CN does not know that its end is recorded.
func (w *world) judgeForgotten() string {
	for _, n := range w.nodes {
		n.mu.Lock()
		defer n.mu.Unlock()
		for id, r := range n.vmms {
			if r.final() {
				return fmt.Sprintf("VMM %s: its CN was never told that its end is recorded", id)
			}
		}
	}
	return ""
}

func (w *world) judgeOne(old bool, id log.UUID, r *real) string {
	events := w.central.of(log.KindVMM, id)
	var last *log.VMM
	at := 0
	for _, e := range events {
		last = e.Object.(*log.VMM)
		if last.State == stateCreating {
			continue
		}
		for at < len(r.history) && r.history[at].Gen < last.Gen {
			at++
		}
		if at == len(r.history) || r.history[at].Gen != last.Gen || r.history[at].State != last.State {
			return fmt.Sprintf("VMM %s: recorded %s %d (%s), which it never was: %v", id, last.State, last.Gen, last.Reason, r.history)
		}
		at++
	}
	if now := r.now(); last == nil || last.State != now.State || last.Gen != now.Gen || !old && last.Reason != now.Reason {
		return fmt.Sprintf("VMM %s: the log ends with %+v, it with %+v", id, last, now)
	}
	if len(r.sides) == 0 {
		return ""
	}
	gen, side := uint64(0), r.sides[len(r.sides)-1]
	for _, e := range w.central.of(log.KindMigration, side.ID) {
		m := e.Object.(*log.Migration)
		if m.TargetGen <= gen || m.TargetState != r.sides[m.TargetGen-1].State {
			return fmt.Sprintf("migration %s: %s %d after %d; it was %v", side.ID, m.TargetState, m.TargetGen, gen, r.sides)
		}
		gen = m.TargetGen
	}
	if gen != side.Gen {
		return fmt.Sprintf("migration %s: the log ends with %d, it with %d", side.ID, gen, side.Gen)
	}
	return ""
}
