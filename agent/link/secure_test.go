package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/agent/filter"
	"rutter/agent/link/internal/linktest"
	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
	"rutter/projections/desired"
)

// guardedNode is a node with port security.
type guardedNode struct {
	m     *Manager
	h     *Netlink
	table *linktest.Table
}

// secure opens a node's kernel with port security.
func (w *world) secure(node string, secure plan.Secure) *guardedNode {
	w.t.Helper()
	h := w.open(node)
	g := &guardedNode{h: h, table: &linktest.Table{}}
	h.cfg.Filter = g.table
	g.m = NewManager(ManagerConfig{Kernel: h, Secure: secure})
	return g
}

// guard is secure with the kernel's filter.
func (w *world) guard(node string, secure plan.Secure) *guardedNode {
	w.t.Helper()
	g := w.secure(node, secure)
	g.h.UseFilter(w.filter(node))
	return g
}

// filter opens a node's filter.
func (w *world) filter(node string) (table *filter.Kernel) {
	w.t.Helper()
	err := w.within(node, func() (err error) {
		table, err = filter.Open(context.Background())
		return err
	})
	if errors.Is(err, filter.ErrUnsupported) {
		w.t.Skip(err)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = table.Close() })
	return table
}

// rules are those in a node's filter.
func (g *guardedNode) rules(t *testing.T) filter.State {
	t.Helper()
	s, err := g.h.cfg.Filter.Read(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var required = plan.Secure{On: true, Required: true}

// neighbours makes the desired state of one node with two VMs on one segment.
func (w *world) neighbours(vlan uint16, zones ...string) desired.Links {
	a, _ := w.two(vlan, false)
	first := a.Fabrics[0]
	a.Fabrics, a.Neighs = nil, nil
	for i, zone := range zones {
		f := first
		f.MAC, f.Namespace = mac(10+i), zone
		f.Addresses = []netip.Prefix{prefix(fmt.Sprintf("192.168.5.%d/24", 10+i)), prefix(fmt.Sprintf("fd05::%d/64", 10+i))}
		a.Fabrics = append(a.Fabrics, f)
		for j := range zones {
			for _, format := range []string{"192.168.5.%d", "fd05::%d"} {
				if j != i {
					a.Neighs = append(a.Neighs, desired.Neigh{Link: f.MAC, IP: addr(fmt.Sprintf(format, 10+j)), MAC: mac(10 + j)})
				}
			}
		}
	}
	return a
}

// TestSecuredTwoNodes has the kernel's filter.
func TestSecuredTwoNodes(t *testing.T) { testSecuredTwoNodes(t, (*world).guard) }

// TestSecuredLinksTwoNodes has the links, and a filter in memory, for a guest kernel that
// has no nf_tables of all families.
func TestSecuredLinksTwoNodes(t *testing.T) { testSecuredTwoNodes(t, (*world).secure) }

func testSecuredTwoNodes(t *testing.T, open func(w *world, node string, secure plan.Secure) *guardedNode) {
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
				cn1, cn2 := open(w, "cn1", required), open(w, "cn2", required)
				w.pass(cn1.m, a)
				w.pass(cn2.m, b)
				for node, want := range map[*guardedNode]desired.Links{cn1: a, cn2: b} {
					if result := w.pass(node.m, want); len(result.Steps) != 0 {
						t.Fatalf("second pass: got %v, want no step", texts(result.Steps))
					}
					rules := node.rules(t)
					if len(rules.Ports) != 1 || len(rules.Segments) != 1 || len(rules.Peers) != 1 || !slices.Equal(rules.Underlay.Interfaces, []string{"net0"}) {
						t.Errorf("rules: %+v", rules)
					}
					if index, _ := node.h.indexOf(plan.LinkKey{Name: "port0"}); len(rules.Ports) == 1 && rules.Ports[0].Index != uint32(index) {
						t.Errorf("rules are of ifindex %d, the host end has %d", rules.Ports[0].Index, index)
					}
				}
				full := int(a.Fabrics[0].MTU) - 28 // IPv4 and ICMP headers
				for _, p := range []struct {
					to   netip.Addr
					size int
				}{{addr("192.168.5.2"), 8}, {addr("fd05::2"), 8}, {addr("192.168.5.2"), full}} {
					if err := w.ping("zA", p.to, p.size); err != nil {
						t.Errorf("first packet of %d bytes: %v", p.size, err)
					}
				}
				w.pass(cn1.m, desired.Links{})
				have, err := w.open("cn1").Dump(context.Background(), []string{"zA"})
				if err != nil || len(have.Links) != 0 || len(have.Resolvers) != 0 {
					t.Errorf("after all is unwanted: got %v, %v, %v, want nothing", have.Links, have.Resolvers, err)
				}
				if rules := cn1.rules(t); len(rules.Ports)+len(rules.Segments)+len(rules.Peers)+len(rules.Underlay.Ports) > 0 {
					t.Errorf("rules after all is unwanted: %+v", rules)
				}
			})
		}
	}
}

// TestSecuredHeals: each piece of the attachment that another program takes away comes back,
// and is reported as drift.
func TestSecuredHeals(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	w.namespace("zB")
	want := w.neighbours(0, "zA", "zB")
	want.VXLANs[0].Flood = true
	g := w.secure("cn1", required)
	w.pass(g.m, want)
	index := func(ns, name string) int32 { i, _ := g.h.indexOf(plan.LinkKey{Namespace: ns, Name: name}); return i }
	raw := func(ns string, typ netlink.HeaderType, flags netlink.HeaderFlags, body func(e *wire.Encoder)) {
		w.raw(ns, typ, flags, body)
	}
	damages := []struct {
		name   string
		damage func()
	}{
		{"bridge", func() {
			raw("cn1", unix.RTM_DELLINK, 0, func(e *wire.Encoder) { e.LinkHeader(index("", "br5v0"), 0, 0) })
		}},
		{"bridge settings", func() {
			raw("cn1", unix.RTM_NEWLINK, 0, func(e *wire.Encoder) {
				e.Set(&plan.Link{Snooping: true}, index("", "br5v0"), plan.ChangeBridge)
			})
		}},
		{"bridge down", func() {
			raw("cn1", unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.Set(nil, index("", "br5v0"), plan.ChangeDown) })
		}},
		{"port taken out", func() {
			raw("cn1", unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.Master(index("", "port0"), 0) })
		}},
		{"device taken out", func() {
			raw("cn1", unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.Master(index("", "sdcvxl5"), 0) })
		}},
		{"port flags", func() {
			raw("cn1", unix.RTM_NEWLINK, 0, func(e *wire.Encoder) {
				e.PortFlags(plan.PortFlags{Learning: true, Flood: true}, index("", "port0"))
			})
		}},
		{"static entry", func() {
			raw("cn1", unix.RTM_DELNEIGH, 0, func(e *wire.Encoder) {
				e.Static(plan.Step{Op: plan.OpDelStatic, MAC: mac(10)}, index("", "port0"))
			})
		}},
		{"another static entry", func() {
			raw("cn1", unix.RTM_NEWNEIGH, flagsReplace, func(e *wire.Encoder) {
				e.Static(plan.Step{Op: plan.OpSetStatic, MAC: mac(77)}, index("", "port0"))
			})
		}},
		{"static entry at another port", func() {
			raw("cn1", unix.RTM_NEWNEIGH, flagsReplace, func(e *wire.Encoder) {
				e.Static(plan.Step{Op: plan.OpSetStatic, MAC: mac(10)}, index("", "port1"))
			})
		}},
		{"host end down", func() {
			raw("cn1", unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.Set(nil, index("", "port0"), plan.ChangeDown) })
		}},
		{"host end", func() {
			raw("cn1", unix.RTM_DELLINK, 0, func(e *wire.Encoder) { e.LinkHeader(index("", "port0"), 0, 0) })
		}},
		{"a guest deletes its end", func() {
			raw("zA", unix.RTM_DELLINK, 0, func(e *wire.Encoder) { e.LinkHeader(index("zA", "fabric0"), 0, 0) })
		}},
		{"a guest changes MAC and MTU", func() {
			raw("zA", unix.RTM_NEWLINK, 0, func(e *wire.Encoder) {
				e.Set(&plan.Link{MAC: mac(66), MTU: 1300}, index("zA", "fabric0"), plan.ChangeMAC|plan.ChangeMTU)
			})
		}},
		{"VXLAN device", func() {
			raw("cn1", unix.RTM_DELLINK, 0, func(e *wire.Encoder) { e.LinkHeader(index("", "sdcvxl5"), 0, 0) })
		}},
		{"entry for all", func() {
			raw("cn1", unix.RTM_DELNEIGH, 0, func(e *wire.Encoder) {
				e.Forward(plan.Step{Op: plan.OpDelFlood, Addr: addr("10.99.0.2")}, index("", "sdcvxl5"))
			})
		}},
		{"another entry for all", func() {
			raw("cn1", unix.RTM_NEWNEIGH, netlink.Create|netlink.Append, func(e *wire.Encoder) {
				e.Forward(plan.Step{Op: plan.OpAddFlood, Addr: addr("10.99.0.9")}, index("", "sdcvxl5"))
			})
		}},
		{"rules of a port", func() { g.table.Held.Ports = g.table.Held.Ports[1:] }},
		{"all rules", func() { g.table.Held = filter.State{} }},
	}
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			d.damage()
			if result := w.pass(g.m, want); len(result.Drift) == 0 {
				t.Errorf("drift: got none, want some; steps %v", texts(result.Steps))
			}
			if result := w.pass(g.m, want); len(result.Steps) != 0 {
				t.Errorf("pass after: got %v, want no step", texts(result.Steps))
			}
			if err := w.ping("zA", addr("192.168.5.11"), 8); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSecuredRenamed: a guest's name for its end is accepted, and the link is programmed
// under it.
func TestSecuredRenamed(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	w.namespace("zB")
	want := w.neighbours(0, "zA", "zB")
	g := w.secure("cn1", required)
	w.pass(g.m, want)
	for at, name := range map[plan.LinkKey]string{{Namespace: "zA", Name: "fabric0"}: "eth0", {Name: "port1"}: "odd"} {
		ns := at.Namespace
		if ns == "" {
			ns = "cn1"
		}
		i, _ := g.h.indexOf(at)
		w.raw(ns, unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.Set(&plan.Link{Name: name}, i, plan.ChangeName) })
	}
	want.Fabrics[0].Addresses = append(want.Fabrics[0].Addresses, prefix("192.168.5.20/24"))
	w.pass(g.m, want)
	if result := w.pass(g.m, want); len(result.Steps) > 0 {
		t.Errorf("the next pass: %v", texts(result.Steps))
	}
	if len(g.m.Renamed()) != 2 {
		t.Errorf("renamed: %v", g.m.Renamed())
	}
	if err := w.ping("zB", addr("192.168.5.10"), 8); err != nil {
		t.Error(err)
	}
}

// TestSecuredNotSupported: without nf_tables the host ends stay down, each NIC is reported,
// and nothing else waits; if rules are not required, everything runs, and that is said.
func TestSecuredNotSupported(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	w.namespace("zB")
	want := w.neighbours(0, "zA", "zB")
	g := w.secure("cn1", required)
	w.pass(g.m, want)
	lacks := fmt.Errorf("%w: no sets", filter.ErrUnsupported)
	g.table.Unreadable = lacks
	result := mustPass(t, g.m, clone(want))
	if result.Matched || g.m.Unsupported() != nil {
		t.Errorf("matched %v, unsupported %v", result.Matched, g.m.Unsupported())
	}
	var said []string
	for _, f := range result.Failures {
		if errors.Is(f.Err, filter.ErrUnsupported) {
			said = append(said, f.Object.String())
		}
	}
	if expect := []string{"bridge br5v0", "fabric link of 02:00:00:00:00:0a", "fabric link of 02:00:00:00:00:0b"}; !slices.Equal(said, expect) {
		t.Errorf("failures %v, want %v", result.Failures, expect)
	}
	if err := w.pingFor(100*time.Millisecond, "zA", addr("192.168.5.11"), 8); err == nil {
		t.Error("a VM without rules has a link that is up")
	}
	g.m = NewManager(ManagerConfig{Kernel: g.h, Secure: plan.Secure{On: true}, Numbers: g.m.numbers})
	w.pass(g.m, want)
	if err := w.ping("zA", addr("192.168.5.11"), 8); err != nil {
		t.Error(err)
	}
	if !errors.Is(g.m.Unsupported(), filter.ErrUnsupported) {
		t.Errorf("unsupported: %v, want the reason", g.m.Unsupported())
	}
	// Neither does a reason that may pass keep a VM down where rules are not required.
	g.table.Unreadable = syscall.EBUSY
	w.namespace("zC")
	three := w.neighbours(0, "zA", "zB", "zC")
	if result := mustPass(t, g.m, clone(three)); len(result.Failures) != 1 || result.Failures[0].Object.Kind != plan.ObjectRules {
		t.Errorf("failures: %v, want that the rules are unknown", result.Failures)
	}
	if err := w.ping("zC", addr("192.168.5.11"), 8); err != nil {
		t.Error(err)
	}
	mustPass(t, g.m, clone(want))
	g.table.Unreadable = nil
	w.pass(g.m, want)
	if g.m.Unsupported() != nil || len(g.table.Held.Ports) != 2 {
		t.Errorf("with nf_tables: %v, %+v", g.m.Unsupported(), g.table.Held)
	}
}

// TestSecuredRefusedRules: rules that the kernel refuses keep down the one link that they
// are for, and are reported with it.
func TestSecuredRefusedRules(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	w.namespace("zB")
	want := w.neighbours(0, "zA", "zB")
	g := w.secure("cn1", required)
	now := time.Now()
	g.m.cfg.Now = func() time.Time { return now }
	g.table.Refuse = func(c filter.Change) error {
		if c.SetPort != nil && c.SetPort.MAC == mac(10) {
			return syscall.EINVAL
		}
		return nil
	}
	result := mustPass(t, g.m, clone(want))
	if len(result.Failures) != 1 || result.Failures[0].Object != (plan.Object{Kind: plan.ObjectFabric, MAC: mac(10)}) || !errors.Is(result.Failures[0].Err, syscall.EINVAL) {
		t.Errorf("failures: %v, want one link's", result.Failures)
	}
	state := func(name string) bool {
		have, err := w.open("cn1").Dump(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(have.Links, func(l plan.Link) bool { return l.Name == name })
		return i >= 0 && have.Links[i].Up
	}
	if state("port0") || !state("port1") {
		t.Errorf("up: port0 %v, port1 %v, want only the one with rules", state("port0"), state("port1"))
	}
	g.table.Refuse = nil
	now = now.Add(maxDelay)
	w.pass(g.m, want)
	if err := w.ping("zA", addr("192.168.5.11"), 8); err != nil {
		t.Error(err)
	}
	// Rules that are gone, and are refused now, take the link down.
	g.table.Held.Ports = nil
	g.table.Refuse = func(c filter.Change) error { return syscall.EINVAL }
	mustPass(t, g.m, clone(want))
	if state("port0") || state("port1") {
		t.Error("links without rules are up")
	}
}

// TestSecuredForeignBridge: a bridge of another program that has one of our names is left
// alone, and is reported.
func TestSecuredForeignBridge(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	want := w.neighbours(0, "zA")
	w.raw("cn1", unix.RTM_NEWLINK, flagsCreate, func(e *wire.Encoder) {
		e.Bridge(&plan.Link{Name: "br5v0", MTU: 1500}, 0)
	})
	g := w.secure("cn1", required)
	result := mustPass(t, g.m, clone(want))
	if result.Matched || len(result.Conflicts) != 1 || !errors.Is(result.Conflicts[0].Err, plan.ErrForeign) {
		t.Errorf("matched %v, conflicts %v", result.Matched, result.Conflicts)
	}
	mustPass(t, g.m, desired.Links{})
	have, err := w.open("cn1").Dump(context.Background(), nil)
	if err != nil || len(have.Links) != 1 || have.Links[0].Name != "br5v0" {
		t.Errorf("links after all is unwanted: %v, %v, want the bridge of another program", have.Links, err)
	}
}

// TestSecuredSwitch: a node whose links were made without port security gets them with it,
// and the reverse, with all numbers and addresses.
func TestSecuredSwitch(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	w.namespace("zB")
	want := w.neighbours(0, "zA", "zB")
	g := w.guard("cn1", plan.Secure{})
	w.pass(g.m, want)
	lost := w.pinger("zA", addr("192.168.5.11"))
	for i, on := range []bool{true, false, true} {
		g.m = NewManager(ManagerConfig{Kernel: g.h, Secure: plan.Secure{On: on, Required: on}, Numbers: g.m.numbers})
		began := time.Now()
		w.pass(g.m, want)
		took := time.Since(began)
		if result := w.pass(g.m, want); len(result.Steps) > 0 {
			t.Errorf("switch %d: the next pass: %v", i, texts(result.Steps))
		}
		if err := w.ping("zA", addr("192.168.5.11"), 8); err != nil {
			t.Errorf("switch %d: %v", i, err)
		}
		if rules := g.rules(t); len(rules.Ports) > 0 != on || len(rules.Underlay.Ports) > 0 != on || len(rules.Peers) > 0 != on {
			t.Errorf("switch %d: rules %+v", i, rules)
		}
		t.Logf("port security %v: the pass took %s, no reply for %s", on, took.Round(time.Millisecond), lost().Round(time.Millisecond))
	}
	for _, name := range []string{"fabric0", "fabric1"} {
		ns := map[string]string{"fabric0": "zA", "fabric1": "zB"}[name]
		if _, ok := g.h.indexOf(plan.LinkKey{Namespace: ns, Name: name}); !ok {
			t.Errorf("%s is not in %s", name, ns)
		}
	}
}

// TestPartsEndAsPassesSecured: changes of own NICs, made by parts, end with what a pass
// makes, rules included.
func TestPartsEndAsPassesSecured(t *testing.T) {
	w := newWorld(t)
	for _, zone := range []string{"zA", "zB", "zC"} {
		w.namespace(zone)
	}
	all := w.neighbours(0, "zA", "zB", "zC")
	other := desired.VXLAN{VNet: 6, Local: all.VXLANs[0].Local, Port: 4789, MTU: 1450}
	none, one, two, three, moved := desired.Links{}, clone(all), clone(all), clone(all), clone(all)
	keep := func(l *desired.Links, n int) {
		l.Fabrics = l.Fabrics[:n]
		l.Neighs = slices.DeleteFunc(l.Neighs, func(e desired.Neigh) bool {
			has := func(m desired.Neigh) bool {
				return slices.ContainsFunc(l.Fabrics, func(f desired.Fabric) bool { return f.MAC == m.Link })
			}
			return !has(e)
		})
	}
	keep(&one, 1)
	keep(&two, 2)
	keep(&three, 3)
	keep(&moved, 2)
	moved.VXLANs = append(moved.VXLANs, other)
	moved.Fabrics[1].VNet = 6
	moved.FDB = append(moved.FDB, desired.FDB{VNet: 6, MAC: mac(40), Dst: addr("10.99.0.3")})
	loose := clone(two)
	loose.Fabrics[1].Security = desired.Security{AnyIP: true, Promiscuous: true}
	g := w.guard("cn1", required)
	w.pass(g.m, none)
	held := none
	for i, next := range []desired.Links{one, two, three, loose, moved, two, one, none, two} {
		result := g.m.Apply(context.Background(), deltaBetween(held, next))
		held = clone(next)
		if result.Look || !result.Matched {
			t.Fatalf("change %d: look %v, matched %v, failures %v", i, result.Look, result.Matched, result.Failures)
		}
		if again := mustPass(t, g.m, clone(held)); len(again.Steps) > 0 {
			t.Errorf("change %d: the pass after it: %v", i, texts(again.Steps))
		}
	}
	if err := w.ping("zA", addr("192.168.5.11"), 8); err != nil {
		t.Error(err)
	}
}

// TestPeersFollowEntries: a change of another node's NIC takes its node as a peer before the
// entry to it, and a node without entries is no peer any more.
func TestPeersFollowEntries(t *testing.T) {
	table := &linktest.Table{}
	f := &plan.Fake{Filter: table, Interfaces: []plan.Interface{{Name: "net0", Index: 2, Addresses: []netip.Addr{addr("10.99.0.1")}}}}
	f.AddNamespace("z1")
	m := NewManager(ManagerConfig{Kernel: f, Secure: required})
	want := linktest.Sample()
	want.VXLANs[0].Flood = true
	mustPass(t, m, clone(want))
	steps := func(d desired.LinksDelta) []string { return texts(m.Apply(context.Background(), d).Steps) }
	got := steps(desired.LinksDelta{FDB: []desired.FDB{{VNet: 5, MAC: mac(3), Dst: addr("10.99.0.3")}}})
	expect := []string{
		"add peer 10.99.0.3 of sdcvxl5",
		"bridge fdb append 00:00:00:00:00:00 dev sdcvxl5 dst 10.99.0.3 self permanent",
		"bridge fdb replace 02:00:00:00:00:03 dev sdcvxl5 dst 10.99.0.3 self permanent",
		"bridge fdb del 00:00:00:00:00:00 dev sdcvxl5 dst 10.99.0.2 self",
		"delete peer 10.99.0.2 of sdcvxl5",
	}
	if !slices.Equal(got, expect) {
		t.Errorf("a NIC moves: %q, want %q", got, expect)
	}
	if got := steps(desired.LinksDelta{FDB: []desired.FDB{{VNet: 5, MAC: mac(4), Dst: addr("10.99.0.3")}}}); len(got) != 1 {
		t.Errorf("a second NIC there: %q", got)
	}
	if got := steps(desired.LinksDelta{NoFDB: []desired.FDB{{VNet: 5, MAC: mac(3)}, {VNet: 5, MAC: mac(3)}}}); !table.Has(5, addr("10.99.0.3")) {
		t.Errorf("the first goes: %q, and the peer with it", got)
	}
	if got := steps(desired.LinksDelta{NoFDB: []desired.FDB{{VNet: 5, MAC: mac(4)}}}); len(got) != 3 || table.Has(5, addr("10.99.0.3")) {
		t.Errorf("the last goes: %q, peers %v", got, table.Held.Peers)
	}
}

// pinger pings without end from a namespace. The function that it returns gives the longest
// time without a reply since the last call.
func (w *world) pinger(from string, to netip.Addr) func() time.Duration {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	asked, answers, ended := make(chan struct{}), make(chan time.Duration), make(chan struct{})
	go func() {
		defer close(ended)
		last, longest := time.Now(), time.Duration(0)
		for ctx.Err() == nil {
			err := w.pingFor(time.Millisecond, from, to, 8)
			now := time.Now()
			longest = max(longest, now.Sub(last))
			if err == nil {
				last = now
			}
			select {
			case <-asked:
				answers <- longest
				longest = 0
			case <-time.After(time.Millisecond):
			}
		}
	}()
	w.t.Cleanup(func() {
		stop()
		<-ended
	})
	return func() time.Duration {
		asked <- struct{}{}
		return <-answers
	}
}

// bridgeLink appends what "bridge link set dev PORT learning on" sends.
func bridgeLink(e *wire.Encoder, index int32) {
	const learning = 8 // IFLA_BRPORT_LEARNING, linux/if_link.h
	e.U32(unix.AF_BRIDGE)
	e.U32(uint32(index))
	e.U32(0)
	e.U32(0)
	e.Nest(unix.IFLA_PROTINFO, func() { e.B = append(e.B, 5, 0, learning, 0, 1, 0, 0, 0) })
}

// TestSecuredIsHealedFromWhatIsHeard: what other programs change of the attachment is healed
// without a pass over everything, and what this one does is no change by others.
func TestSecuredIsHealedFromWhatIsHeard(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	w.namespace("zB")
	table := w.filter("cn1")
	g := guard(w, w.neighbours(0, "zA", "zB"), time.Hour, table)
	g.m = NewManager(ManagerConfig{Kernel: g.h, Secure: required})
	w.pass(g.m, g.want)
	g.settled()
	if result := g.m.Apply(context.Background(), desired.LinksDelta{}); len(result.Drift) > 0 || len(result.Stirred) > 0 || !result.Matched && !result.Look {
		t.Fatalf("after the pass: look %v, matched %v, stirred %v, drift %v", result.Look, result.Matched, result.Stirred, texts(result.Drift))
	}
	mustPass(t, g.m, clone(g.want))
	one := clone(g.want)
	one.Fabrics, one.Neighs = one.Fabrics[:1], nil
	for _, step := range [][2]desired.Links{{g.want, one}, {one, g.want}} {
		if result := g.m.Apply(context.Background(), deltaBetween(step[0], step[1])); !result.Matched {
			t.Fatalf("a part: look %v, stirred %v, failures %v", result.Look, result.Stirred, result.Failures)
		}
	}
	g.settled()
	if result := g.m.Apply(context.Background(), desired.LinksDelta{}); !result.Matched || len(result.Stirred) > 0 {
		t.Fatalf("after the parts: look %v, stirred %v: what this program does is heard as another's", result.Look, result.Stirred)
	}
	index := func(ns, name string) int32 { i, _ := g.h.indexOf(plan.LinkKey{Namespace: ns, Name: name}); return i }
	change := func(ns string, typ netlink.HeaderType, flags netlink.HeaderFlags, body func(e *wire.Encoder)) func() {
		return func() { w.raw(ns, typ, flags, body) }
	}
	for _, d := range []struct {
		name string
		do   func()
		pass bool // a part does not do
	}{
		{"port flags", change("cn1", unix.RTM_SETLINK, 0, func(e *wire.Encoder) { bridgeLink(e, index("", "port0")) }), false},
		{"static entry", change("cn1", unix.RTM_DELNEIGH, 0, func(e *wire.Encoder) {
			e.Static(plan.Step{Op: plan.OpDelStatic, MAC: mac(10)}, index("", "port0"))
		}), false},
		{"another's static entry", change("cn1", unix.RTM_NEWNEIGH, flagsReplace, func(e *wire.Encoder) {
			e.Static(plan.Step{Op: plan.OpSetStatic, MAC: mac(88)}, index("", "port0"))
		}), false},
		{"port taken out", change("cn1", unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.Master(index("", "port0"), 0) }), false},
		{"host end down", change("cn1", unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.Set(nil, index("", "port0"), plan.ChangeDown) }), false},
		{"a guest deletes its end", change("zA", unix.RTM_DELLINK, 0, func(e *wire.Encoder) { e.LinkHeader(index("zA", "fabric0"), 0, 0) }), false},
		{"a guest changes its MAC", change("zA", unix.RTM_NEWLINK, 0, func(e *wire.Encoder) {
			e.Set(&plan.Link{MAC: mac(66)}, index("zA", "fabric0"), plan.ChangeMAC)
		}), false},
		{"rules", func() {
			vandal := w.filter("cn1")
			rules, err := vandal.Read(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if errs := vandal.Apply(context.Background(), []filter.Change{{DelPort: rules.Ports[0].Index}}); errs != nil {
				t.Fatal(errs)
			}
		}, true},
		{"bridge", change("cn1", unix.RTM_DELLINK, 0, func(e *wire.Encoder) { e.LinkHeader(index("", "br5v0"), 0, 0) }), true},
		{"bridge down", change("cn1", unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.Set(nil, index("", "br5v0"), plan.ChangeDown) }), true},
		{"device taken out", change("cn1", unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.Master(index("", "sdcvxl5"), 0) }), true},
	} {
		t.Run(d.name, func(t *testing.T) {
			d.do()
			drift := 0
			end := time.After(patience)
			for healed := false; !healed; {
				select {
				case <-g.woken:
				case <-end:
					t.Fatal("not healed")
				}
				result := g.m.Apply(context.Background(), desired.LinksDelta{})
				if len(result.Stirred) > 0 && !result.Look {
					result = g.m.Apply(context.Background(), deltaBetween(g.want, g.want, result.Stirred...))
				}
				drift += len(result.Drift)
				if result.Look && !d.pass {
					t.Fatal("it takes a pass")
				} else if result.Look {
					drift += len(w.pass(g.m, g.want).Drift)
				}
				healed = drift > 0
			}
			mustPass(t, g.m, clone(g.want))
			g.settled()
			g.m.Apply(context.Background(), desired.LinksDelta{})
			w.pass(g.m, g.want)
			if err := w.ping("zA", addr("192.168.5.11"), 8); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSharedAddressIsFound: an address that a pair of VMs shares is in no kernel's entries,
// because the log does not say which of them has it. On a network with broadcast another VM
// asks for it, and the holder answers.
func TestSharedAddressIsFound(t *testing.T) {
	w := newWorld(t)
	for _, zone := range []string{"zA", "zB", "zC"} {
		w.namespace(zone)
	}
	want := w.neighbours(0, "zA", "zB", "zC")
	shared := addr("192.168.5.99")
	for i := range want.Fabrics[1:] {
		want.Fabrics[1+i].Allowed = []netip.Addr{shared}
	}
	want.Segments = []desired.Segment{{VNet: want.Fabrics[0].VNet, MTU: want.VXLANs[0].MTU, Broadcast: true}}
	g := w.guard("cn1", required)
	w.pass(g.m, want)
	if result := w.pass(g.m, want); len(result.Steps) > 0 {
		t.Errorf("the next pass: %v", texts(result.Steps))
	}
	b := plan.LinkKey{Namespace: "zB", Name: "fabric1"}
	if errs := g.h.Do(context.Background(), []plan.Step{{Op: plan.OpAddAddress, Namespace: b.Namespace, Link: b.Name, Prefix: netip.PrefixFrom(shared, 32)}}); errs != nil {
		t.Fatal(errors.Join(errs...))
	}
	if result := w.pass(g.m, want); len(result.Steps) > 0 {
		t.Errorf("the address is the VM's to set: %v", texts(result.Steps))
	}
	for end := time.Now().Add(time.Minute); ; {
		err := w.ping("zA", shared, 8)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the address that zB has: %v", err)
		}
	}
}

// TestBroadcastAsksOtherNodes: on a network with broadcast a VM finds an address of which the
// log says only that a VM of another node may have it, as that of a keepalived pair.
func TestBroadcastAsksOtherNodes(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	w.namespace("zB")
	a, b := w.two(0, false)
	for _, side := range []*desired.Links{&a, &b} {
		side.VXLANs[0].Flood = true
		side.Segments = []desired.Segment{{VNet: 5, MTU: side.Fabrics[0].MTU, Broadcast: true}}
	}
	b.Fabrics[0].Allowed = []netip.Addr{addr("192.168.5.77"), addr("fd05::77")}
	cn1, cn2 := w.guard("cn1", required), w.guard("cn2", required)
	w.pass(cn1.m, a)
	w.pass(cn2.m, b)
	for _, shared := range []string{"192.168.5.77/32", "fd05::77/128"} {
		step := plan.Step{Op: plan.OpAddAddress, Namespace: b.Fabrics[0].Namespace, Link: "fabric0", Prefix: prefix(shared)}
		if errs := cn2.h.Do(context.Background(), []plan.Step{step}); errs != nil {
			t.Fatal(errs)
		}
	}
	w.pass(cn2.m, b)
	for _, to := range b.Fabrics[0].Allowed {
		if err := w.pingFor(20*time.Second, "zA", to, 8); err != nil {
			t.Errorf("to %s, which VM zB has added: %v", to, err)
		}
	}
}

// TestSecuredSegmentLeft: the bridge and device of a segment that the node's last NIC left
// go, and are not reported as another program's.
func TestSecuredSegmentLeft(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	was := w.neighbours(0, "zA")
	next := clone(was)
	next.VXLANs[0].VNet, next.Fabrics[0].VNet = 6, 6
	next.FDB, next.Peers = nil, nil
	g := w.secure("cn1", required)
	w.pass(g.m, was)
	result := w.pass(g.m, next)
	if len(result.Drift) != 0 {
		t.Errorf("drift: got %v, want none", texts(result.Drift))
	}
	gone := slices.ContainsFunc(result.Steps, func(s plan.Step) bool { return s.Op == plan.OpDelLink && s.Link == "br5v0" })
	if !gone || !result.Matched {
		t.Errorf("br5v0 was deleted: %v, matched %v: %v", gone, result.Matched, texts(result.Steps))
	}
}
