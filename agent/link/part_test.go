package link

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

// deltaBetween is what desired.Touches says of two desired states whose devices differ only
// in that there are more or fewer.
func deltaBetween(before, after desired.Links, stirred ...log.MAC) desired.LinksDelta {
	part := &desired.Part{}
	namespaces, touched := map[string]bool{}, map[log.MAC]bool{}
	touch := func(mac log.MAC) {
		touched[mac] = true
		for _, w := range []desired.Links{before, after} {
			if i, ok := findFabric(w.Fabrics, mac); ok {
				namespaces[w.Fabrics[i].Namespace] = true
			}
		}
	}
	for _, w := range []desired.Links{before, after} {
		for _, f := range w.Fabrics {
			i, had := findFabric(before.Fabrics, f.MAC)
			j, has := findFabric(after.Fabrics, f.MAC)
			if had != has || !sameFabric(before.Fabrics[i], after.Fabrics[j]) {
				touch(f.MAC)
			}
		}
	}
	for _, mac := range stirred {
		touch(mac)
	}
	for again := true; again; {
		again = false
		for _, w := range []desired.Links{before, after} {
			for _, f := range w.Fabrics {
				if f.Namespace != "" && namespaces[f.Namespace] && !touched[f.MAC] {
					touch(f.MAC)
					again = true
				}
			}
		}
	}
	for mac := range touched {
		part.NICs = append(part.NICs, mac)
	}
	slices.SortFunc(part.NICs, log.MAC.Compare)
	vlan := func(v desired.VLAN) desired.VLAN { return desired.VLAN{VNet: v.VNet, ID: v.ID} }
	for _, v := range before.VXLANs {
		if _, ok := findVXLAN(after.VXLANs, v.VNet); !ok {
			part.NoVXLANs = append(part.NoVXLANs, v.VNet)
		}
	}
	for _, v := range before.VLANs {
		if !slices.Contains(after.VLANs, v) {
			part.NoVLANs = append(part.NoVLANs, vlan(v))
		}
	}
	for _, v := range after.VXLANs {
		if _, ok := findVXLAN(before.VXLANs, v.VNet); !ok {
			part.New = append(part.New, v.VNet)
		}
	}
	for _, f := range after.Fabrics {
		if touched[f.MAC] {
			part.Links.Fabrics = append(part.Links.Fabrics, f)
			if i, ok := findVXLAN(after.VXLANs, f.VNet); ok && !slices.Contains(part.Links.VXLANs, after.VXLANs[i]) {
				part.Links.VXLANs = append(part.Links.VXLANs, after.VXLANs[i])
			}
			for _, v := range after.VLANs {
				if v.VNet == f.VNet && v.ID == f.VLAN && !slices.Contains(part.Links.VLANs, v) {
					part.Links.VLANs = append(part.Links.VLANs, v)
				}
			}
		}
	}
	slices.SortFunc(part.Links.VXLANs, func(a, b desired.VXLAN) int { return cmp.Compare(a.VNet, b.VNet) })
	var d desired.LinksDelta
	for _, n := range after.Neighs {
		if touched[n.Link] {
			part.Links.Neighs = append(part.Links.Neighs, n)
		} else if !slices.Contains(before.Neighs, n) {
			d.Neighs = append(d.Neighs, n)
		}
	}
	for _, n := range before.Neighs {
		if wantedIn(&after, plan.Object{Kind: plan.ObjectNeigh, MAC: n.Link, IP: n.IP}) == (plan.Target{}) {
			d.NoNeighs = append(d.NoNeighs, desired.Neigh{Link: n.Link, IP: n.IP})
		}
	}
	for _, f := range after.FDB {
		if slices.Contains(part.New, f.VNet) {
			part.Links.FDB = append(part.Links.FDB, f)
		} else if !slices.Contains(before.FDB, f) {
			d.FDB = append(d.FDB, f)
		}
	}
	for _, f := range before.FDB {
		if _, stays := findVXLAN(after.VXLANs, f.VNet); stays && !slices.ContainsFunc(after.FDB, func(o desired.FDB) bool { return o.VNet == f.VNet && o.MAC == f.MAC }) {
			d.NoFDB = append(d.NoFDB, desired.FDB{VNet: f.VNet, MAC: f.MAC})
		}
	}
	if len(part.NICs) > 0 || len(part.New)+len(part.NoVXLANs)+len(part.NoVLANs) > 0 {
		d.Part = part
	}
	return d
}

// drawNode draws a desired state of a node whose underlay does not change. Vnets without
// a NIC have no device.
func drawNode(t *rapid.T) desired.Links {
	want := drawDesired(t)
	used := func(vnet uint32) bool {
		return slices.ContainsFunc(want.Fabrics, func(f desired.Fabric) bool { return f.VNet == vnet })
	}
	want.VXLANs = slices.DeleteFunc(want.VXLANs, func(v desired.VXLAN) bool { return !used(v.VNet) })
	want.VLANs = slices.DeleteFunc(want.VLANs, func(v desired.VLAN) bool { return !used(v.VNet) })
	for i := range want.VXLANs {
		want.VXLANs[i].Local, want.VXLANs[i].MTU = addr("10.99.0.1"), 1450
	}
	for i := range want.VLANs {
		want.VLANs[i].MTU = 1446
	}
	for i := range want.Fabrics {
		want.Fabrics[i].MTU = min(want.Fabrics[i].MTU, 1446)
	}
	slices.SortFunc(want.FDB, func(a, b desired.FDB) int {
		return cmp.Or(cmp.Compare(a.VNet, b.VNet), a.MAC.Compare(b.MAC))
	})
	return want
}

func mustPassTwin(t *rapid.T, m *Manager, want desired.Links) {
	t.Helper()
	if result, err := m.Pass(context.Background(), clone(want), true); err != nil || !result.Matched {
		t.Fatalf("pass: %v, %v %v", err, result.Failures, result.Conflicts)
	}
}

// unhold takes VMs off hold, unless they may be.
func unhold(w *desired.Links, may bool) {
	for i := range w.Fabrics {
		w.Fabrics[i].Hold = w.Fabrics[i].Hold && may
	}
}

// clone copies a state, so that a Manager's copy does not change with it.
func clone(w desired.Links) desired.Links {
	w.VXLANs, w.VLANs, w.Fabrics = slices.Clone(w.VXLANs), slices.Clone(w.VLANs), slices.Clone(w.Fabrics)
	w.Neighs, w.FDB = slices.Clone(w.Neighs), slices.Clone(w.FDB)
	return w
}

// anonymous is a kernel's state with fabric links named by their MACs: a pass over
// everything and the deltas may choose other numbers.
func anonymous(t *rapid.T, k plan.Kernel, namespaces []string) plan.Snapshot {
	have, err := k.Dump(context.Background(), namespaces)
	if err != nil {
		t.Fatal(err)
	}
	for i := range have.Links {
		l := &have.Links[i]
		if l.Index = 0; l.Kind == plan.KindMacvlan {
			l.Name = l.MAC.String()
		}
		if l.Kind != plan.KindMacvlan {
			l.MAC = log.MAC{} // the kernel chooses it
		}
	}
	have.Sort()
	return have
}

func sameKernel(t *rapid.T, got, want plan.Kernel, namespaces []string) {
	t.Helper()
	a, b := anonymous(t, got, namespaces), anonymous(t, want, namespaces)
	if !slices.EqualFunc(a.Links, b.Links, func(x, y plan.Link) bool { return x.String() == y.String() }) || !reflect.DeepEqual(a.Resolvers, b.Resolvers) {
		t.Fatalf("the deltas made\n%v\n%v\na pass makes\n%v\n%v", a.Links, a.Resolvers, b.Links, b.Resolvers)
	}
}

// TestPartsEndAsPasses (SAFETY B8): any sequence of changes of a node's own NICs, programmed
// as deltas, ends in the kernel that a pass makes of the last state, and the next pass
// has no steps. Steps fail, namespaces are missing, and the process is killed between
// two steps.
func TestPartsEndAsPasses(t *testing.T) {
	var deltas, looks, failures, kills int
	namespaces := []string{"z1", "z2"}
	rapid.Check(t, func(t *rapid.T) {
		f := &plan.Fake{}
		f.AddNamespace("z1")
		f.AddNamespace("z2")
		now := time.Unix(1_000_000, 0)
		var saved plan.Numbers
		config := ManagerConfig{Kernel: f, Now: func() time.Time { return now }, Save: func(n plan.Numbers) error {
			text, err := n.MarshalJSON()
			if err != nil {
				return err
			}
			return saved.UnmarshalJSON(text)
		}}
		m := NewManager(config)
		twin := &plan.Fake{} // makes passes only
		twin.AddNamespace("z1")
		twin.AddNamespace("z2")
		passes := NewManager(ManagerConfig{Kernel: twin})
		held := drawNode(t)
		holds := rapid.Bool().Draw(t, "holds") // what a VM on hold has depends on when it failed
		unhold(&held, holds)
		pass := func() {
			result, err := m.Pass(context.Background(), clone(held), true)
			if err != nil || !result.Matched {
				t.Fatalf("pass: %v, %v %v", err, result.Failures, result.Conflicts)
			}
			mustPassTwin(t, passes, held)
		}
		pass()
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			next := drawNode(t)
			unhold(&next, holds)
			failing := rapid.IntRange(0, 9).Draw(t, "failing")
			if holds {
				failing = 0
			}
			steps := 0
			if failing >= 6 {
				f.Fail = func(plan.Step) error {
					if steps++; failing == 9 && steps > 2 || steps%(failing-3) == 0 {
						return syscall.ENOMEM
					}
					return nil
				}
			}
			delta := deltaBetween(held, next)
			result := m.Apply(context.Background(), delta)
			held, f.Fail = next, nil
			mustPassTwin(t, passes, held)
			switch {
			case failing == 9: // killed: the rest was not done
				kills++
				config.Numbers = saved
				m = NewManager(config)
				pass()
			case result.Look:
				looks++
				now = now.Add(maxDelay)
				pass()
			case !result.Matched:
				if result.RetryAt.IsZero() || len(result.Failures) == 0 {
					t.Fatalf("neither matched nor failing: %+v", result)
				}
				failures++
				now = now.Add(maxDelay)
				pass()
			default:
				deltas++
			}
			if rapid.Bool().Draw(t, "next is a delta too") {
				continue
			}
			again, err := m.Pass(context.Background(), clone(held), true)
			if err != nil || len(again.Steps) > 0 || !again.Matched {
				t.Fatalf("the pass after the delta: %v, steps %v, drift %v", err, texts(again.Steps), again.Drift)
			}
		}
		again, err := m.Pass(context.Background(), clone(held), true)
		if err != nil || len(again.Steps) > 0 || !again.Matched {
			t.Fatalf("the pass after the deltas: %v, steps %v, drift %v", err, texts(again.Steps), again.Drift)
		}
		sameKernel(t, f, twin, namespaces)
	})
	t.Logf("%d deltas, %d looks, %d failures, %d kills", deltas, looks, failures, kills)
	if deltas == 0 || looks > deltas/2 || failures == 0 || kills == 0 {
		t.Error("want some of each, and few looks")
	}
}

// ownNIC is a NIC with an address, on the untagged fabric of a vnet.
func ownNIC(n int, vnet uint32, namespace string) desired.Fabric {
	return desired.Fabric{
		MAC: mac(n), VNet: vnet, MTU: 1400, Namespace: namespace,
		Addresses: []netip.Prefix{prefix(fmt.Sprintf("10.%d.0.%d/24", vnet, n))},
	}
}

// TestPartsInTheKernel: a sequence of changes of own NICs, programmed as deltas in the real
// kernel, ends as passes do, and its notifications do not look like another program's.
func TestPartsInTheKernel(t *testing.T) {
	w := newWorld(t)
	w.namespace("z1")
	w.namespace("z2")
	tagged := w.has8021Q()
	states := rapid.Custom(drawNode)
	draw := func(seed int) desired.Links {
		want := states.Example(seed)
		unhold(&want, false)
		if !tagged {
			want.VLANs = nil
			for i := range want.Fabrics {
				want.Fabrics[i].VLAN = 0
			}
		}
		return want
	}
	held := draw(0)
	g := guard(w, held, time.Hour)
	if result := mustPass(t, g.m, clone(held)); !result.Matched {
		t.Fatalf("first pass: %v %v", result.Failures, result.Conflicts)
	}
	g.settled()
	for seed := range 24 {
		next := draw(seed + 1)
		result := g.m.Apply(context.Background(), deltaBetween(held, next))
		held = next
		if len(result.Stirred) > 0 { // the kernel did more than it was told, and a later round corrected that
			result.Matched = true
		}
		if result.Look || !result.Matched {
			t.Fatalf("delta %d: look %v, failures %v, conflicts %v, steps %v", seed, result.Look, result.Failures, result.Conflicts, texts(result.Steps))
		}
		if len(result.Drift) > 0 {
			t.Fatalf("delta %d corrects itself: %v", seed, texts(result.Drift))
		}
		if seed%4 != 0 {
			continue
		}
		g.settled()
		after := g.m.Apply(context.Background(), desired.LinksDelta{})
		if len(after.Stirred) > 0 {
			after = g.m.Apply(context.Background(), deltaBetween(held, held, after.Stirred...))
		}
		if after.Look || len(after.Steps) > 0 || !after.Matched {
			t.Errorf("delta %d: its notifications look like another program's: look %v, matched %v, steps %v", seed, after.Look, after.Matched, texts(after.Steps))
		}
		g.h.views = map[string]*view{} // the pass reads all namespaces
		if result := mustPass(t, g.m, clone(held)); len(result.Steps) > 0 || !result.Matched {
			t.Fatalf("pass after delta %d: %v", seed, texts(result.Steps))
		}
	}
	fresh := w.open("cn1") // knows nothing of what the other one did
	have, err := fresh.Dump(context.Background(), []string{"z1", "z2"})
	if err != nil {
		t.Fatal(err)
	}
	if work := plan.Plan(held, have, g.m.numbers, true); len(work.Steps)+len(work.Blocked) > 0 {
		t.Fatalf("left: %v %v", texts(work.Steps), work.Blocked)
	}
}

// settled waits until the watch has judged all notifications that were sent before: it
// hears an address of a foreign link after them. Rules have a watch of their own.
func (g *guarded) settled() {
	g.w.t.Helper()
	select {
	case <-g.heard:
	default:
	}
	mark := func(e *wire.Encoder) { e.Address(plan.Step{Prefix: prefix("192.0.2.77/32")}, loopbackIndex) }
	g.w.raw("cn1", unix.RTM_NEWADDR, flagsReplace, mark)
	select {
	case <-g.heard:
	case <-time.After(patience):
		g.w.t.Fatal("the watch hears nothing")
	}
	g.w.raw("cn1", unix.RTM_DELADDR, 0, mark)
	doubtful := func() bool {
		g.h.expected.mu.Lock()
		defer g.h.expected.mu.Unlock()
		return len(g.h.expected.doubtful) > 0
	}
	for end := time.Now().Add(patience); doubtful(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			g.w.t.Fatal("links are not judged")
		}
	}
	time.Sleep(5 * watchQuiet) // the rules'
}

// loopbackIndex is the ifindex of each namespace's own link.
const loopbackIndex = 1

// TestLateNamespaceIsAPart: a NIC whose VM has no namespace yet is one failure, retried with
// the pauses of a pass. The namespace that appears costs a part of this NIC, no pass, and
// one in which nothing of ours is wanted costs nothing.
func TestLateNamespaceIsAPart(t *testing.T) {
	w := newWorld(t)
	w.namespace("z1")
	held := desired.Links{
		VXLANs:  []desired.VXLAN{{VNet: 5, Local: addr("10.99.0.1"), Port: 4789, MTU: 1450}},
		Fabrics: []desired.Fabric{ownNIC(1, 5, "z1")},
	}
	g := guard(w, held, time.Hour)
	mustPass(t, g.m, clone(held))
	g.settled()
	next := clone(held)
	next.Fabrics = append(next.Fabrics, ownNIC(2, 5, "z2"))
	result := g.m.Apply(context.Background(), deltaBetween(held, next))
	if result.Look || result.Matched || len(result.Failures) != 1 || result.RetryAt.IsZero() || !result.Part {
		t.Fatalf("without a namespace: look %v, matched %v, failures %v, retry %v", result.Look, result.Matched, result.Failures, result.RetryAt)
	}
	held = next
	w.namespace("z9")
	w.namespace("z2")
	for end := time.After(patience); len(result.Stirred) == 0; {
		select {
		case <-g.woken:
		case <-end:
			t.Fatal("the namespace was not noticed")
		}
		if result = g.m.Apply(context.Background(), desired.LinksDelta{}); result.Look || result.Matched {
			t.Fatalf("after the namespace: look %v, matched %v", result.Look, result.Matched)
		}
	}
	if !slices.Equal(result.Stirred, []log.MAC{mac(2)}) {
		t.Fatalf("stirred: %v, want the one NIC", result.Stirred)
	}
	result = g.m.Apply(context.Background(), deltaBetween(held, held, result.Stirred...))
	if !result.Matched || len(result.Failures) > 0 || len(result.Drift) > 0 {
		t.Fatalf("with the namespace: matched %v, failures %v, drift %v", result.Matched, result.Failures, texts(result.Drift))
	}
	if again := mustPass(t, g.m, clone(held)); len(again.Steps) > 0 {
		t.Errorf("the pass after it: %v", texts(again.Steps))
	}
}

// TestPartLeavesForeignLinks: the last NIC of a vnet goes, and another program's link is on
// the device: the device stays, as a conflict, until that link is gone.
func TestPartLeavesForeignLinks(t *testing.T) {
	f := &plan.Fake{}
	f.AddNamespace("z1")
	m, _ := fakeManager(f)
	held := desired.Links{
		VXLANs:  []desired.VXLAN{{VNet: 5, Local: addr("10.99.0.1"), Port: 4789, MTU: 1450}, {VNet: 6, Local: addr("10.99.0.1"), Port: 4789, MTU: 1450}},
		Fabrics: []desired.Fabric{ownNIC(1, 5, "z1"), ownNIC(2, 6, "")},
	}
	mustPass(t, m, clone(held))
	if err := f.AddLink(plan.Link{Name: "theirs", Kind: "ipvlan", Parent: "sdcvxl5"}); err != nil {
		t.Fatal(err)
	}
	next := clone(held)
	next.VXLANs, next.Fabrics = next.VXLANs[1:], next.Fabrics[1:]
	result := m.Apply(context.Background(), deltaBetween(held, next))
	if len(result.Conflicts) != 1 || result.Matched || result.Look {
		t.Errorf("conflicts %v, matched %v, look %v, want one conflict", result.Conflicts, result.Matched, result.Look)
	}
	if f.Find(plan.LinkKey{Name: "theirs"}) == nil || f.Find(plan.LinkKey{Name: "sdcvxl5"}) == nil {
		t.Error("another program's link was deleted with the device")
	}
	if result := m.Apply(context.Background(), desired.LinksDelta{}); result.Matched {
		t.Error("matched while the conflict lasts")
	}
	f.DeleteLink("", "theirs")
	if result := mustPass(t, m, clone(next)); !result.Matched || f.Find(plan.LinkKey{Name: "sdcvxl5"}) != nil {
		t.Errorf("without the foreign link: matched %v, conflicts %v", result.Matched, result.Conflicts)
	}
}

// TestPartThatIsNotClosed: if a part does not show all that its links depend on, a pass does
// the work.
func TestPartThatIsNotClosed(t *testing.T) {
	f := &plan.Fake{}
	f.AddNamespace("z1")
	m, _ := fakeManager(f)
	held := desired.Links{
		VXLANs:  []desired.VXLAN{{VNet: 5, Local: addr("10.99.0.1"), Port: 4789, MTU: 1450}},
		Fabrics: []desired.Fabric{ownNIC(1, 5, "z1")},
	}
	mustPass(t, m, clone(held))
	next := clone(held)
	next.Fabrics = append(next.Fabrics, ownNIC(2, 5, "z1"))
	delta := deltaBetween(held, next)
	delta.Part.NICs = []log.MAC{mac(2)} // its namespace has another one
	delta.Part.Links.Fabrics = next.Fabrics[1:]
	before := len(f.Done)
	if result := m.Apply(context.Background(), delta); !result.Look || len(f.Done) != before {
		t.Errorf("a shared namespace: look %v, %d steps, want a pass and none", result.Look, len(f.Done)-before)
	}
	mustPass(t, m, clone(held))
	f.DeleteLink("", "sdcvxl5") // with what is on it
	if result := m.Apply(context.Background(), deltaBetween(held, next)); !result.Look || f.Find(plan.LinkKey{Name: "sdcvxl5"}) != nil {
		t.Errorf("a device that is gone: look %v, want a pass: the part has no entries for it", result.Look)
	}
	if result := mustPass(t, m, clone(next)); !result.Matched {
		t.Errorf("the pass: %v", result.Failures)
	}
}

// TestResolversThatStayAreRemovedLater: a resolv.conf whose removal failed is removed by the
// next try, although the NIC of its namespace is gone.
func TestResolversThatStayAreRemovedLater(t *testing.T) {
	f := &plan.Fake{}
	f.AddNamespace("z1")
	m, now := fakeManager(f)
	held := desired.Links{
		VXLANs:  []desired.VXLAN{{VNet: 5, Local: addr("10.99.0.1"), Port: 4789, MTU: 1450}},
		Fabrics: []desired.Fabric{ownNIC(1, 5, "z1")},
	}
	held.Fabrics[0].Resolvers = []netip.Addr{addr("10.5.0.9")}
	mustPass(t, m, clone(held))
	f.Fail = func(s plan.Step) error {
		if s.Op == plan.OpRemoveResolvers {
			return syscall.EROFS
		}
		return nil
	}
	if result := m.Apply(context.Background(), deltaBetween(held, desired.Links{})); result.Matched || result.RetryAt.IsZero() {
		t.Errorf("failed: matched %v, retry at %v", result.Matched, result.RetryAt)
	}
	f.Fail, *now = nil, now.Add(maxDelay)
	mustPass(t, m, desired.Links{})
	have, err := f.Dump(context.Background(), []string{"z1"})
	if err != nil || len(have.Resolvers) > 0 {
		t.Errorf("resolv.conf stays: %v, %v", have.Resolvers, err)
	}
}
