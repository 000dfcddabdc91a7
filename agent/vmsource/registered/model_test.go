package registered

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vmsource"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
)

// model is a compute node, the log as servers decide it, and the way between them: requests
// and answers are lost, come late, and come twice.
type model struct {
	logger *slog.Logger // of the sources; nil: none
	t      testing.TB

	mu        sync.Mutex // protects what follows
	rand      *rand.Rand
	state     *projections.State
	seq       log.Seq
	done      map[log.UUID]log.Result // by change id; the servers remember them until forget
	made      uint64                  // ids
	late      []func()                // requests on their way
	down      bool                    // no server answers
	faulty    bool
	insecure  bool                     // nodes have no certificates: each may write everything
	held      map[log.UUID]string      // VMs of other sources
	zones     map[string]log.UUID      // zonenames of VMs of other sources
	told      map[log.MAC]vmdoc.Attach // attachments
	ended     map[log.UUID]string      // VMs that ended, and why
	waits     map[log.MAC]string       // NICs that the kernel does not have
	forgotten map[log.UUID]bool        // change ids that are too old
}

var (
	modelCN    = log.UUID{0xc0, 15: 1}
	otherCN    = log.UUID{0xc0, 15: 2}
	modelOwner = log.UUID{0xaa, 15: 1}
	openNet    = log.UUID{0x0e, 15: 1}
	closedNet  = log.UUID{0x0e, 15: 2}
)

func newModel(t testing.TB, seed uint64) *model {
	m := &model{
		t: t, rand: rand.New(rand.NewPCG(seed, 21)), state: projections.NewState(), done: make(map[log.UUID]log.Result), held: make(map[log.UUID]string),
		told: make(map[log.MAC]vmdoc.Attach), ended: make(map[log.UUID]string), waits: make(map[log.MAC]string), forgotten: make(map[log.UUID]bool),
	}
	m.state.SetFeature(log.FeatureTriton)
	m.operator(
		log.Op{Action: log.Create, Kind: log.KindNICTag, Set: []string{"mtu", "name"}, Object: &log.NICTag{Name: "ext", MTU: 1500}},
		log.Op{Action: log.Create, Kind: log.KindServer, Set: []string{"hostname", "uuid"}, Object: &log.Server{UUID: modelCN, Hostname: "cn0"}},
		log.Op{Action: log.Create, Kind: log.KindServer, Set: []string{"hostname", "uuid"}, Object: &log.Server{UUID: otherCN, Hostname: "cn1"}},
		network(openNet, "open", "10.0.0", log.SelfProvisionAny), network(closedNet, "closed", "10.0.1", log.SelfProvisionOff))
	return m
}

func network(id log.UUID, name, base, open string) log.Op {
	addr := netip.MustParseAddr
	return log.Op{
		Action: log.Create, Kind: log.KindNetwork, Set: strings.Fields("gateway mtu name nic_tag provision_end_ip provision_start_ip resolvers routes self_provision subnet uuid vlan_id"),
		Object: &log.Network{
			UUID: id, Name: name, NICTag: "ext", VLANID: uint32(10 + id[15]), MTU: 1400, Subnet: netip.MustParsePrefix(base + ".0/24"), SelfProvision: open,
			ProvisionStart: addr(base + ".10"), ProvisionEnd: addr(base + ".250"), Gateway: addr(base + ".1"), Resolvers: log.Addresses{addr(base + ".2")},
			Routes: log.Routes{{Dst: "10.9.0.0/16", Gateway: base + ".3"}},
		},
	}
}

func (m *model) newID() log.UUID {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made++
	return log.UUID{6: 0x70, 8: 0x80, 12: byte(m.made >> 24), 13: byte(m.made >> 16), 14: byte(m.made >> 8), 15: byte(m.made)}
}

func (m *model) operator(ops ...log.Op) {
	m.t.Helper()
	id := m.newID()
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.decide(&log.Change{ID: id, Actor: "operator", Ops: ops}); r.Refusal != nil {
		m.t.Fatal(r.Refusal)
	}
}

// decide decides a change once. The lock is held.
func (m *model) decide(c *log.Change) log.Result {
	if first, ok := m.done[c.ID]; ok {
		return first
	}
	if m.forgotten[c.ID] {
		return log.Result{Refusal: &log.Refusal{Code: log.CodeTooOld, Message: "older than the window"}}
	}
	c.Time, c.Seed = log.Time(1e18), uint64(m.seq)+1
	events, result := rules.Decide(m.state, c)
	for _, e := range events {
		m.seq++
		if _, err := m.state.Apply(m.seq, e); err != nil {
			m.t.Fatal(err)
		}
	}
	result.Last = m.seq
	m.done[c.ID] = result
	return result
}

var errLost = errors.New("no server answers")

// Submit implements Servers.
func (m *model) Submit(ctx context.Context, change *log.Change, _ time.Duration) (log.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	deliver := func() log.Result {
		c := *change
		c.Ops = slices.Clone(change.Ops)
		for i := range c.Ops {
			if c.Ops[i].Object != nil {
				c.Ops[i].Object = log.Clone(c.Ops[i].Object)
			}
		}
		if c.Actor = "cn"; !m.insecure {
			c.By = log.Author{Role: log.RoleCN, CN: modelCN}
		}
		return m.decide(&c)
	}
	if ctx.Err() != nil {
		return log.Result{}, ctx.Err()
	}
	if m.down {
		return log.Result{}, errLost
	}
	if m.faulty {
		switch m.rand.IntN(5) {
		case 0:
			return log.Result{}, errLost
		case 1: // the answer is lost
			deliver()
			return log.Result{}, errLost
		case 2: // it comes late, behind others
			m.late = append(m.late, func() { deliver() })
			return log.Result{}, errLost
		case 3: // it comes twice
			m.late = append(m.late, func() { deliver() })
		}
	}
	result := deliver()
	if result.Refusal != nil {
		return result, result.Refusal
	}
	return result, nil
}

// Network implements Servers.
func (m *model) Network(_ context.Context, name string) (log.UUID, error) {
	if m.isDown() {
		return log.UUID{}, errLost
	}
	return log.UUID{}, &log.Refusal{Code: log.CodeResourceNotFound, Message: name}
}

// HasVM implements Servers.
func (m *model) HasVM(_ context.Context, id log.UUID) (bool, error) {
	if m.isDown() {
		return false, errLost
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	vm := m.state.VM(id)
	return vm != nil && vm.ServerUUID == modelCN, nil
}

// NIC implements Servers.
func (m *model) NIC(_ context.Context, mac log.MAC) (nic *log.NIC, err error) {
	if m.isDown() {
		return nil, errLost
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if rec, ok := m.state.Get(log.KindNIC, mac.String()); ok {
		if nic = log.Clone(rec.Object).(*log.NIC); nic.CNUUID != modelCN && !m.insecure {
			nic = nil
		}
	}
	return nic, nil
}

func (m *model) isDown() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.down
}

// View implements Node.
func (m *model) View(fn func(*projections.State)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fn(m.state)
}

// Waits implements Node.
func (m *model) Waits(log.UUID) (log.Seq, map[log.MAC]string, map[log.MAC]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	waits := make(map[log.MAC]string)
	for mac, why := range m.waits {
		waits[mac] = why
	}
	return m.seq, waits, nil
}

// Attaching implements Node.
func (m *model) Attaching(at map[log.MAC]vmdoc.Attach) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for mac, a := range at {
		m.told[mac] = a
	}
}

// Holder implements Node.
func (m *model) Holder(vm log.UUID) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held[vm]
}

// ZoneHolder implements Node.
func (m *model) ZoneHolder(zone string) (vm log.UUID, source string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id, ok := m.zones[zone]; ok {
		return id, "folder"
	}
	return vm, ""
}

// Ended implements Node.
func (m *model) Ended(vm log.UUID, failure string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended[vm] = failure
}

func (m *model) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// nics are the NICs of a VM in the log, by MAC, with their networks.
func (m *model) nics(vm log.UUID) map[log.MAC]*log.NIC {
	nics := make(map[log.MAC]*log.NIC)
	m.View(func(state *projections.State) {
		for rec := range state.NICsOf(vm) {
			nic := rec.Object.(*log.NIC)
			nics[nic.MAC] = nic
		}
	})
	return nics
}

// sink is a vmsource.Sink that keeps what it was told.
type sink struct {
	mu      sync.Mutex
	vms     map[log.UUID]vmdoc.VM
	foreign map[log.UUID]bool // VMs of another source
	deleted []log.UUID
	loaded  bool
}

func newSink() *sink {
	return &sink{vms: make(map[log.UUID]vmdoc.VM), foreign: make(map[log.UUID]bool)}
}

func (s *sink) Put(vm vmdoc.VM) ([]vmdoc.Change, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.foreign[vm.UUID] {
		return nil, false, fmt.Errorf("%w: folder has %s", vmsource.ErrDuplicate, vm.UUID)
	}
	s.vms[vm.UUID] = vm
	return nil, true, nil
}

func (s *sink) Delete(id log.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.vms[id]
	delete(s.vms, id)
	s.deleted = append(s.deleted, id)
	return ok
}

func (s *sink) UUIDs() (ids []log.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.vms {
		ids = append(ids, id)
	}
	return ids
}

func (s *sink) Loaded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded = true
}

func (s *sink) get(id log.UUID) (vmdoc.Value, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	vm, ok := s.vms[id]
	v, _ := vmdoc.ParseValue(vm.JSON) // empty: not there
	return v, ok
}

// running is a source that runs.
type running struct {
	*Source
	sink *sink
	stop func()
}

// start opens the source of a folder and runs it.
func (m *model) start(folder string, into *sink) *running {
	m.t.Helper()
	s, err := New(Config{
		Name: "test", Folder: folder, CN: modelCN, Node: m, Servers: m, NewID: m.newID, RetryMin: time.Millisecond, RetryMax: 4 * time.Millisecond, DeleteWithin: 20 * time.Millisecond, Logger: m.logger,
	})
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.Run(ctx, into); err != nil {
			m.t.Error(err)
		}
	}()
	return &running{s, into, func() { cancel(); <-ended }}
}

// until waits for a condition.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not in time", what)
		}
	}
}

// codeOf is the code of an error; "" if it is no *Error.
func codeOf(err error) string {
	if e, is := errors.AsType[*Error](err); is {
		return e.Code
	}
	return ""
}
