package netsync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmrun"
	"rutter/api/triton/netreport"
	"rutter/log"
	"rutter/log/report"
	"rutter/projections"
	"rutter/projections/rules"
)

// model is a compute node, its agent's sync, the way to two servers, and what
// the log is: everything between agent and servers is dropped, doubled, delayed
// and put in another order.
type model struct {
	t    testing.TB
	rand *rand.Rand
	told []string

	mu     sync.Mutex // the servers decide the changes of a report at once
	state  *projections.State
	seq    log.Seq
	events []*log.Event
	done   map[log.UUID]log.Result // by change id
	made   uint64                  // ids

	servers []*netreport.Service
	late    []func() // reports on their way
	faulty  bool
	placed  bool // the log places the VMs
	bound   bool // the node has a certificate, and the log decides what it may write

	view    *projections.State // the agent's part of the log
	viewSeq log.Seq

	now     time.Time
	vms     map[log.UUID]vmdoc.Value // manifests, with their state
	reboots int
	sync    *Syncer
	born    uint64

	forbidden map[log.MAC]bool // deleted in the log: they do not come back
	created   map[log.MAC]bool // by the agent
	excused   map[log.MAC]bool // that may stay in the log without a VM: they were not watched, or they moved elsewhere
	macs      int
}

var (
	modelCN      = log.UUID{0xc0, 15: 1}
	otherCN      = log.UUID{0xc0, 15: 2}
	modelCluster = log.UUID{0xcc}
	modelOwner   = log.UUID{0xaa, 15: 1}
	modelNets    = []log.UUID{{0x0e, 15: 1}, {0x0e, 15: 2}}
)

func newModel(t testing.TB, seed uint64) *model {
	m := &model{
		t: t, rand: rand.New(rand.NewPCG(seed, 8)), state: projections.NewState(), done: make(map[log.UUID]log.Result),
		view: projections.NewSmallState(), now: time.Unix(1e9, 0), vms: make(map[log.UUID]vmdoc.Value), faulty: true, forbidden: make(map[log.MAC]bool),
		created: make(map[log.MAC]bool), excused: make(map[log.MAC]bool),
	}
	for range 2 {
		s, err := netreport.New(netreport.Config{Store: modelStore{m}})
		if err != nil {
			t.Fatal(err)
		}
		m.servers = append(m.servers, s)
	}
	m.operator("", log.Op{Action: log.Create, Kind: log.KindNICTag, Set: []string{"mtu", "name"}, Object: &log.NICTag{Name: "ext", MTU: 1500}},
		m.network(0, "10.0.0"), m.network(1, "10.0.1"))
	m.restart()
	return m
}

func (m *model) network(i int, base string) log.Op {
	return log.Op{
		Action: log.Create, Kind: log.KindNetwork, Set: strings.Fields("mtu name nic_tag provision_end_ip provision_start_ip resolvers subnet uuid vlan_id"),
		Object: &log.Network{
			UUID: modelNets[i], Name: fmt.Sprint("net", i), NICTag: "ext", VLANID: uint32(10 + i), MTU: 1400, Subnet: netip.MustParsePrefix(base + ".0/24"),
			ProvisionStart: netip.MustParseAddr(base + ".10"), ProvisionEnd: netip.MustParseAddr(base + ".250"), Resolvers: log.Addresses{netip.MustParseAddr(base + ".2")},
		},
	}
}

func (m *model) newID() log.UUID {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made++
	return log.UUID{6: 0x70, 8: 0x80, 12: byte(m.made >> 24), 13: byte(m.made >> 16), 14: byte(m.made >> 8), 15: byte(m.made)}
}

// restart restarts the agent: it keeps only its ledger.
func (m *model) restart() {
	b := newLedger()
	if m.sync != nil {
		b = m.sync.core.ledger
	}
	m.born++
	s, err := New(Config{CN: modelCN, Incarnation: m.born, Log: m, Node: m, Servers: m, NewID: m.newID, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		m.t.Fatal(err)
	}
	s.core.ledger, s.now = b, func() time.Time { return m.now }
	m.sync = s
}

// modelStore is the log as a server sees it.
type modelStore struct{ *model }

func (s modelStore) Serving() error { return nil }

func (s modelStore) Consistent(context.Context) (log.Seq, error) { return s.seq, nil }

func (s modelStore) View(fn func(*projections.State, log.Cursor)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn(s.state, log.Cursor{Cluster: modelCluster, Seq: s.seq})
}

// Propose decides a change once, whatever came before and however often it comes.
func (s modelStore) Propose(_ context.Context, c *log.Change) (log.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first, ok := s.done[c.ID]; ok {
		return first, nil
	}
	c.Time, c.Seed = log.TimeOf(s.now), uint64(s.seq)+1
	if s.bound && strings.HasPrefix(c.Actor, netreport.ActorCN) {
		c.By = log.Author{Role: log.RoleCN, CN: modelCN}
	}
	events, result := rules.Decide(s.state, c)
	for _, e := range events {
		s.seq++
		if _, err := s.state.Apply(s.seq, e); err != nil {
			s.t.Fatal(err)
		}
		s.events = append(s.events, e)
		if nic, is := e.Object.(*log.NIC); is && e.Action == log.Create && strings.HasPrefix(c.Actor, netreport.ActorCN) {
			s.created[nic.MAC] = true
		}
		s.told = append(s.told, fmt.Sprintf("  log %d %s %s %s by %q", s.seq, e.Action, e.Object.Kind(), e.Object.ID(), c.Actor))
	}
	result.Last = s.seq
	s.done[c.ID] = result
	return result, nil
}

func (m *model) operator(what string, ops ...log.Op) *log.Refusal {
	result, err := modelStore{m}.Propose(m.t.Context(), &log.Change{ID: m.newID(), Actor: "operator", Ops: ops})
	if err != nil {
		m.t.Fatal(err)
	}
	m.tell("operator: %s: %v", what, result.Refusal)
	return result.Refusal
}

func (m *model) tell(format string, args ...any) {
	m.told = append(m.told, fmt.Sprintf(format, args...))
}

// Part implements Log.
func (m *model) Part(fn func(*projections.State, log.UUID, log.Seq, bool)) {
	fn(m.view, modelCluster, m.viewSeq, true)
}

// follow takes up to n more events of the log, those that concern the node.
func (m *model) follow(n int) {
	for ; n > 0 && m.viewSeq < m.seq; n-- {
		e := m.events[m.viewSeq]
		m.viewSeq++
		rec := projections.Record{Object: e.Object, Revision: e.Revision, Seq: m.viewSeq}
		nic, is := e.Object.(*log.NIC)
		if e.Action == log.Delete || is && nic.CNUUID != modelCN {
			m.view.Drop(e.Object.Kind(), e.Object.ID())
		} else if err := m.view.Load(rec); err != nil {
			m.t.Fatal(err)
		}
	}
}

var errLost = errors.New("it was lost")

// Raw implements Servers.
func (m *model) Raw(ctx context.Context, _, path string, body []byte) (json.RawMessage, error) {
	server := m.servers[m.rand.IntN(len(m.servers))]
	if path != "/reports/"+modelCN.String() {
		m.t.Fatalf("path %s", path)
	}
	deliver := func() (json.RawMessage, error) {
		var r report.Report
		if err := json.Unmarshal(body, &r); err != nil {
			m.t.Fatal(err)
		}
		a, err := server.Take(ctx, modelCN, &r, false)
		if err != nil {
			return nil, err
		}
		return json.Marshal(a)
	}
	later := func() {
		m.late = append(m.late, func() {
			m.tell("a late report arrives")
			if _, err := deliver(); err != nil {
				m.t.Fatal(err)
			}
		})
	}
	if m.faulty {
		switch m.rand.IntN(6) {
		case 0: // dropped
			m.tell("report dropped")
			return nil, errLost
		case 1: // the answer is dropped
			m.tell("answer dropped")
			_, _ = deliver()
			return nil, errLost
		case 2: // delayed, behind others
			m.tell("report delayed")
			later()
			return nil, errLost
		case 3: // doubled
			later()
		}
	}
	return deliver()
}

// VMs implements Node.
func (m *model) VMs() (vms []VM, gone func(vm log.UUID) bool) {
	for _, id := range m.ids() {
		vm, err := VMOf(m.vms[id], m.vms[id])
		vm.Placed = m.placed
		if err != nil {
			m.t.Fatal(err)
		}
		vms = append(vms, vm)
	}
	whole := !m.faulty || m.rand.IntN(4) > 0
	return vms, func(log.UUID) bool { return whole }
}

func (m *model) ids() []log.UUID {
	ids := make([]log.UUID, 0, len(m.vms))
	for id := range m.vms {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, compareUUID)
	return ids
}

// Edit implements Node.
func (m *model) Edit(id log.UUID, change func(vmdoc.Value) vmdoc.Value) error {
	v, ok := m.vms[id]
	switch {
	case m.faulty && m.rand.IntN(8) == 0:
		return errors.New("the manifest cannot be written")
	case !ok:
		return vmrun.ErrNoVM
	}
	m.vms[id] = change(v)
	m.tell("edit of %s: %s", id, m.vms[id].AppendJSON(nil))
	return nil
}

// Reboot implements Node.
func (m *model) Reboot(log.UUID) error {
	if m.faulty && m.rand.IntN(8) == 0 {
		return errors.New("no reboot now")
	}
	m.reboots++
	return nil
}

// history makes n random steps, then lets everything arrive, and compares.
func (m *model) history(n int) {
	for range n {
		m.step()
	}
	for len(m.late) > 0 {
		m.arrive()
	}
	m.faulty = false
	for id, v := range m.vms { // what is being made is done at last
		if textOf(v, "state") == "provisioning" {
			m.vms[id] = v.With("state", vmdoc.StringValue("running"))
		}
	}
	quiet := 0
	for range 400 {
		m.follow(1 << 20)
		m.sync.pass(m.t.Context())
		m.now = m.now.Add(2 * maxPause)
		if quiet++; !m.sync.Status().Settled || m.viewSeq < m.seq {
			quiet = 0
		}
		if quiet == 3 {
			break
		}
	}
	if quiet < 3 {
		m.fail("it does not come to rest: %+v", m.sync.Status())
	}
	m.compare()
}

func (m *model) arrive() {
	i := m.rand.IntN(len(m.late))
	f := m.late[i]
	m.late = slices.Delete(m.late, i, i+1)
	f()
}

func (m *model) step() {
	m.now = m.now.Add(time.Duration(m.rand.IntN(1000)) * time.Millisecond)
	switch m.rand.IntN(8) {
	case 0, 1, 2:
		m.sync.pass(m.t.Context())
	case 3:
		m.follow(m.rand.IntN(6))
	case 4:
		if len(m.late) > 0 {
			m.arrive()
		}
	case 5, 6:
		m.local()
	case 7:
		if m.rand.IntN(6) == 0 {
			m.tell("the agent restarts")
			m.restart()
		} else {
			m.remote()
		}
	}
}

func (m *model) fail(format string, args ...any) {
	m.t.Helper()
	for _, mac := range m.sync.core.ledger.macs() {
		m.tell("book: %+v", *m.sync.core.ledger.claims[mac])
	}
	for _, id := range m.ids() {
		m.tell("VM %s", m.vms[id].AppendJSON(nil))
	}
	for rec := range m.state.List(log.KindNIC) {
		text, _ := json.Marshal(rec.Object)
		m.tell("NIC %s rev %d", text, rec.Revision)
	}
	m.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(m.told, "\n"))
}

// TestHistories: whatever happens between agent and servers, in the end the log
// and the VMs say the same, nothing that was released is there, and nothing that
// the log deleted came back.
func TestHistories(t *testing.T) {
	histories := 400
	if os.Getenv("RUTTER_LONG") != "" {
		histories = 10_000
	}
	begin := rand.Uint64()
	for i := range uint64(histories) {
		m := newModel(t, begin+i)
		m.tell("seed %d", begin+i)
		m.history(60)
	}
}
