package liveness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testUUID(n int) log.UUID {
	u, err := log.ParseUUID(fmt.Sprintf("00000000-0000-4000-8000-%012x", n))
	if err != nil {
		panic(err)
	}
	return u
}

// memory is a Store: the real decisions, as if replication took no time.
type memory struct {
	mu      sync.RWMutex
	cluster log.UUID
	state   *projections.State
	head    log.Seq
	changed chan struct{}
	deposed error    // what Consistent returns
	events  []string // "seq cn status" of each status that was set
}

func newMemory() *memory {
	return &memory{cluster: testUUID(0xc1), state: projections.NewState(), changed: make(chan struct{})}
}

func (m *memory) Propose(_ context.Context, c *log.Change) (log.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.Time, c.Seed = m.state.Time()+1, uint64(m.head)+1
	events, result := rules.Decide(m.state, c)
	for _, e := range events {
		m.head++
		if _, err := m.state.Apply(m.head, e); err != nil {
			panic(err)
		}
		if s, ok := e.Object.(*log.Server); ok && e.Action == log.Update {
			m.events = append(m.events, s.Hostname+" "+s.Status)
		}
	}
	result.Last = m.head
	close(m.changed)
	m.changed = make(chan struct{})
	return result, nil
}

func (m *memory) View(fn func(*projections.State, log.Cursor)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	fn(m.state, log.Cursor{Cluster: m.cluster, Seq: m.head})
}

func (m *memory) Head() log.Cursor {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return log.Cursor{Cluster: m.cluster, Seq: m.head}
}

func (m *memory) Consistent(context.Context) (log.Seq, error) {
	m.mu.Lock()
	err := m.deposed
	m.mu.Unlock()
	return m.Head().Seq, err
}

func (m *memory) depose(err error) {
	m.mu.Lock()
	m.deposed = err
	m.mu.Unlock()
}

func (m *memory) WaitSeq(ctx context.Context, seq log.Seq) error {
	for {
		m.mu.RLock()
		changed, head := m.changed, m.head
		m.mu.RUnlock()
		if head >= seq {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *memory) statuses() []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return append([]string{}, m.events...)
}

// cluster is three servers in one process, and the network between them.
type cluster struct {
	t     *testing.T
	store *memory
	now   func() time.Time
	nodes []*node

	mu     sync.Mutex
	leader int // -1: none
	term   uint64
	moved  chan struct{}
}

// node is one server of it.
type node struct {
	c      *cluster
	at     int
	table  *Table
	fabric *Fabric
	down   bool // protected by the cluster's lock
	// late is how long answers of this server are on their way, whatever became
	// of the question meanwhile; protected by the cluster's lock.
	late time.Duration
}

func newCluster(t *testing.T, now func() time.Time) *cluster {
	c := &cluster{t: t, store: newMemory(), now: now, leader: -1, moved: make(chan struct{})}
	for i := range 3 {
		c.nodes = append(c.nodes, &node{c: c, at: i})
		c.restart(i)
	}
	return c
}

// restart gives a server an empty table, as a new process has.
func (c *cluster) restart(i int) {
	n := c.nodes[i]
	var drawn int
	table := NewTable(uint64(c.now().UnixNano())+uint64(i), c.now)
	fabric, err := New(Config{
		Store: c.store, Peers: n, Table: table, Now: c.now,
		NewID: func() (log.UUID, error) {
			drawn++
			id := testUUID(drawn<<8 | i)
			id[6] = 0x70
			return id, nil
		},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	n.table, n.fabric = table, fabric
	c.mu.Unlock()
}

// run runs the fabric of every server until the test's end.
func (c *cluster) run() (stop func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	var tasks sync.WaitGroup
	for _, n := range c.nodes {
		tasks.Go(func() { _ = n.fabric.Run(ctx) })
	}
	return func() { cancel(); tasks.Wait() }
}

func (c *cluster) elect(leader int) {
	c.mu.Lock()
	c.leader = leader
	c.term++
	close(c.moved)
	c.moved = make(chan struct{})
	c.mu.Unlock()
}

func (c *cluster) setDown(i int, down bool) {
	c.mu.Lock()
	c.nodes[i].down = down
	c.mu.Unlock()
}

func (n *node) Self() string { return fmt.Sprintf("s%d", n.at) }

func (n *node) Members() (members []Member) {
	for _, o := range n.c.nodes {
		members = append(members, Member{o.Self(), o.Self()})
	}
	return members
}

func (n *node) Leading() (uint64, bool) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	return n.c.term, n.c.leader == n.at
}

func (n *node) LeaderMoved() <-chan struct{} {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	return n.c.moved
}

func (n *node) Ask(ctx context.Context, address string, request []byte) ([]byte, error) {
	n.c.mu.Lock()
	var to *node
	for i, o := range n.c.nodes {
		if o.Self() == address || address == "" && i == n.c.leader {
			to = o
		}
	}
	cut := to == nil || to.down || n.down
	var fabric *Fabric
	var late time.Duration
	if to != nil {
		fabric, late = to.fabric, to.late
	}
	n.c.mu.Unlock()
	if cut {
		return nil, errors.New("not reached")
	}
	b, err := fabric.Answer(ctx, request)
	time.Sleep(late)
	return b, err
}

func (c *cluster) setLate(i int, late time.Duration) {
	c.mu.Lock()
	c.nodes[i].late = late
	c.mu.Unlock()
}

// create puts objects into the log.
func (c *cluster) create(objects ...log.Object) log.Seq {
	c.t.Helper()
	change := &log.Change{ID: testUUID(1<<40 + int(c.store.Head().Seq)), Actor: "test"}
	for _, o := range objects {
		change.Ops = append(change.Ops, log.Op{Action: log.Create, Kind: o.Kind(), Object: o, Set: fieldsOf(o)})
	}
	result, err := c.store.Propose(c.t.Context(), change)
	if err != nil || result.Refusal != nil {
		c.t.Fatalf("create: %v %v", err, result.Refusal)
	}
	return result.Last
}

func fieldsOf(o log.Object) []string {
	if o.Kind() == log.KindServer {
		return []string{"hostname", "uuid"}
	}
	return nil
}

// cns makes n compute nodes and returns their ids.
func (c *cluster) cns(n int) (cns []log.UUID) {
	for i := range n {
		cn := testUUID(0x100 + i)
		c.create(&log.Server{UUID: cn, Hostname: fmt.Sprintf("cn%d", i)})
		cns = append(cns, cn)
	}
	return cns
}

func wait(d time.Duration) {
	time.Sleep(d) // the bubble's clock
	synctest.Wait()
}
