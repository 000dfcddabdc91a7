package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

// book is a log for tests: all existing entries.
type book struct {
	mu     sync.Mutex // protects what follows
	neighs map[neighKey]desired.Neigh
	fdb    map[macKey]desired.FDB
}

type macKey struct {
	vnet uint32
	mac  log.MAC
}

// bookOf has the entries of want, and returns want without them.
func bookOf(want desired.Links) (*book, desired.Links) {
	b := &book{neighs: map[neighKey]desired.Neigh{}, fdb: map[macKey]desired.FDB{}}
	for _, n := range want.Neighs {
		b.neighs[neighKey{n.Link, n.IP}] = n
	}
	for _, f := range want.FDB {
		b.fdb[macKey{f.VNet, f.MAC}] = f
	}
	want.Neighs, want.FDB = nil, nil
	want.VXLANs = append([]desired.VXLAN(nil), want.VXLANs...)
	for i := range want.VXLANs {
		want.VXLANs[i].OnDemand = true
	}
	return b, want
}

// Read implements Source.
func (b *book) Read(read func(Lookup)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	read(b)
}

// Neigh implements Lookup.
func (b *book) Neigh(link log.MAC, ip netip.Addr) (desired.Neigh, bool) {
	n, ok := b.neighs[neighKey{link, ip}]
	return n, ok
}

// FDB implements Lookup.
func (b *book) FDB(vnet uint32, mac log.MAC) (desired.FDB, bool) {
	f, ok := b.fdb[macKey{vnet, mac}]
	return f, ok
}

// answering runs Answer until the test ends.
func answering(t testing.TB, m *Manager) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- m.Resolve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("answer: got %v, want context.Canceled", err)
		}
	})
}

// TestFirstPacketsAreAnsweredOnDemand: two nodes that have no entries at all
// ping each other over tagged and untagged stacks, IPv4 and IPv6.
func TestFirstPacketsAreAnsweredOnDemand(t *testing.T) {
	for _, vlan := range []uint16{0, 7} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("vlan %d, IPv6 underlay %v", vlan, v6), func(t *testing.T) {
				w := newWorld(t)
				if vlan != 0 && !w.has8021Q() {
					t.Skip("this kernel has no 802.1Q: run the compiled test in a kernel that has it")
				}
				w.namespace("zA")
				w.namespace("zB")
				a, b := w.two(vlan, v6)
				managers := map[string]*Manager{}
				for node, want := range map[string]desired.Links{"cn1": a, "cn2": b} {
					truth, bare := bookOf(want)
					m := NewManager(ManagerConfig{Kernel: w.open(node)})
					m.SetSource(truth)
					w.pass(m, bare)
					answering(t, m)
					managers[node] = m
				}
				for _, to := range []string{"192.168.5.2", "fd05::2"} {
					w.pingUntilAnswered("zA", addr(to))
				}
				for node, m := range managers {
					if got := m.Asked(); got.Answered == 0 || got.Resident != 3 {
						t.Errorf("%s: got %+v, want answers, and 3 entries", node, got)
					}
				}
			})
		}
	}
}

// pingUntilAnswered pings again only if the listener may not have begun.
func (w *world) pingUntilAnswered(from string, to netip.Addr) {
	w.t.Helper()
	for end := time.Now().Add(patience); ; {
		err := w.pingFor(2*time.Second, from, to, 8)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("ping from %s: %v", from, err)
		}
	}
}

// TestOnDemandFollowsTheLog: entries in the kernel are replaced and deleted with the
// log; others are not added.
func TestOnDemandFollowsTheLog(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	a, _ := w.two(0, false)
	truth, bare := bookOf(a)
	g := guard(w, bare, time.Hour)
	g.m.SetSource(truth)
	w.pass(g.m, bare)
	link := a.Fabrics[0].MAC
	g.answer(Question{VNet: 5, Namespace: "zA", Link: "fabric0", Fabric: link, IP: addr("192.168.5.2")})
	g.shows(t, "answered", a.Neighs[:1], a.FDB)

	moved := desired.LinksDelta{FDB: []desired.FDB{a.FDB[0]}}
	moved.FDB[0].Dst = addr("10.99.0.9")
	other := desired.FDB{VNet: 5, MAC: mac(44), Dst: addr("10.99.0.9")}
	moved.FDB = append(moved.FDB, other)
	truth.fdb[macKey{5, mac(2)}], truth.fdb[macKey{5, mac(44)}] = moved.FDB[0], other
	if result := g.m.Apply(t.Context(), moved); !result.Matched || len(result.Steps) != 1 {
		t.Errorf("move: matched %v, steps %v, want the one that is held", result.Matched, texts(result.Steps))
	}
	g.shows(t, "moved", a.Neighs[:1], moved.FDB[:1])

	taken := desired.Neigh{Link: link, IP: addr("192.168.5.2"), MAC: mac(44)}
	truth.neighs[neighKey{link, taken.IP}] = taken
	g.m.Apply(t.Context(), desired.LinksDelta{Neighs: []desired.Neigh{taken}, FDB: []desired.FDB{other}, NoFDB: []desired.FDB{{VNet: 5, MAC: mac(2)}}})
	g.shows(t, "address of another NIC", []desired.Neigh{taken}, []desired.FDB{other})

	delete(truth.neighs, neighKey{link, taken.IP})
	delete(truth.fdb, macKey{5, mac(44)})
	g.m.Apply(t.Context(), desired.LinksDelta{NoNeighs: []desired.Neigh{taken}, NoFDB: []desired.FDB{other}})
	g.shows(t, "gone", nil, nil)
	if got := g.m.Asked(); got.Resident != 0 {
		t.Errorf("resident: got %d, want none", got.Resident)
	}
	if result := w.pass(g.m, bare); len(result.Steps) != 0 {
		t.Errorf("pass after all: got %v, want no step", texts(result.Steps))
	}
}

// answer answers questions as Ask does, with the kernel's own writer.
func (g *guarded) answer(asked ...Question) { g.m.demand.resolve(context.Background(), asked, g.h) }

// shows requires the kernel to have these entries.
func (g *guarded) shows(t *testing.T, what string, neighs []desired.Neigh, fdb []desired.FDB) {
	t.Helper()
	want := g.want
	want.Neighs, want.FDB = neighs, fdb
	have, err := g.w.open("cn1").Dump(context.Background(), namespacesOf(&want, &g.m.numbers))
	if err != nil {
		t.Fatal(err)
	}
	if work := plan.Plan(want, have, g.m.numbers, true); len(work.Steps) != 0 {
		t.Errorf("%s: the kernel lacks %v", what, texts(work.Steps))
	}
}

// TestModesSwitchLive: from ahead to on demand and back no packet is lost, and surplus
// entries are removed.
func TestModesSwitchLive(t *testing.T) {
	const peers = 300
	w := newWorld(t)
	w.namespace("z0")
	want := crowd(1, peers, 1)
	truth, bare := bookOf(want)
	g := guard(w, want, time.Hour)
	g.m.demand.limit = 100
	g.m.SetSource(truth)
	w.pass(g.m, want)
	if result := w.pass(g.m, bare); len(result.Steps) != 0 {
		t.Errorf("to on demand: got %d steps, want none but evictions", len(result.Steps))
	}
	if got := g.m.Asked(); got.Resident > 100 || got.Resident < 90 || got.VNets != 1 {
		t.Errorf("on demand: got %+v, want 100 entries or a few less", got)
	}
	have, err := w.open("cn1").Dump(t.Context(), []string{"z0"})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for i := range have.Links {
		n += len(have.Links[i].Neighs) + len(have.Links[i].FDB)
	}
	if got := g.m.Asked(); n != got.Resident {
		t.Errorf("the kernel holds %d entries, %d are known of", n, got.Resident)
	}
	result := w.pass(g.m, want)
	for _, s := range result.Steps {
		if isDelete(s.Op) {
			t.Errorf("to ahead: %v", s)
		}
	}
	if got := g.m.Asked(); got.VNets != 0 || got.Resident != 0 {
		t.Errorf("ahead: got %+v, want nothing on demand", got)
	}
}
