package link

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"rutter/agent/link/plan"
	"rutter/projections/desired"
)

// onVNet5 is a node with these NICs on vnet 5.
func onVNet5(nics ...desired.Fabric) desired.Links {
	return desired.Links{VXLANs: []desired.VXLAN{{VNet: 5, Local: addr("10.99.0.1"), Port: 4789, MTU: 1450}}, Fabrics: nics}
}

// TestPartSeesTheLinkLeftBehind: the link of a NIC that moved into a namespace could not be
// deleted where it was. A later part of the NIC does not take it for gone.
func TestPartSeesTheLinkLeftBehind(t *testing.T) {
	f := &plan.Fake{}
	f.AddNamespace("z1")
	m, now := fakeManager(f)
	held := onVNet5(ownNIC(1, 5, ""))
	mustPass(t, m, clone(held))
	f.Links[1].MAC = mac(77) // so that both can exist
	f.Fail = func(s plan.Step) error {
		if s.Op == plan.OpDelLink {
			return syscall.EBUSY
		}
		return nil
	}
	next := onVNet5(ownNIC(1, 5, "z1"))
	first := m.Apply(context.Background(), deltaBetween(held, next))
	if first.Look || first.Matched || f.Find(plan.LinkKey{Name: "fabric0"}) == nil {
		t.Fatalf("the move: look %v, matched %v", first.Look, first.Matched)
	}
	again := m.Apply(context.Background(), deltaBetween(next, next, mac(1)))
	if again.Matched || len(again.Failures) == 0 {
		t.Errorf("a later part: matched %v, failures %v, while the old link is there", again.Matched, again.Failures)
	}
	f.Fail, *now = nil, now.Add(maxDelay)
	last := m.Apply(context.Background(), deltaBetween(next, next, mac(1)))
	if !last.Matched || f.Find(plan.LinkKey{Name: "fabric0"}) != nil {
		t.Errorf("when it can be deleted: matched %v, failures %v", last.Matched, last.Failures)
	}
}

// TestPartsBesideADeviceThatIsBlocked: while a foreign link has the name of a vnet's device,
// or the kernel does not make that device, changes of NICs on it are parts, with the
// conflict or failure told once, and no pass for each.
func TestPartsBesideADeviceThatIsBlocked(t *testing.T) {
	t.Run("foreign", func(t *testing.T) {
		f := &plan.Fake{}
		m, _ := fakeManager(f)
		if err := f.AddLink(plan.Link{Name: "sdcvxl5", Kind: "dummy"}); err != nil {
			t.Fatal(err)
		}
		partsWithout(t, f, m, onVNet5(ownNIC(1, 5, "z1")), onVNet5(ownNIC(1, 5, "z1"), ownNIC(2, 5, "z2")))
	})
	t.Run("VXLAN refused", func(t *testing.T) {
		f := &plan.Fake{Fail: func(s plan.Step) error {
			if s.Op == plan.OpAddLink && s.Link == "sdcvxl5" {
				return syscall.ENOMEM
			}
			return nil
		}}
		m, _ := fakeManager(f)
		partsWithout(t, f, m, onVNet5(ownNIC(1, 5, "z1")), onVNet5(ownNIC(1, 5, "z1"), ownNIC(2, 5, "z2")))
	})
	t.Run("no 8021q", func(t *testing.T) {
		f := &plan.Fake{No8021Q: true}
		m, _ := fakeManager(f)
		tagged := func(n int, namespace string) desired.Fabric {
			w := ownNIC(n, 5, namespace)
			w.VLAN = 7
			return w
		}
		held, next := onVNet5(tagged(1, "z1")), onVNet5(tagged(1, "z1"), tagged(2, "z2"))
		held.VLANs = []desired.VLAN{{VNet: 5, ID: 7, MTU: 1446}}
		next.VLANs = held.VLANs
		partsWithout(t, f, m, held, next)
	})
}

// partsWithout makes a pass, which cannot make a device, and then parts.
func partsWithout(t *testing.T, f *plan.Fake, m *Manager, held, next desired.Links) {
	t.Helper()
	f.AddNamespace("z1")
	f.AddNamespace("z2")
	if result := mustPass(t, m, clone(held)); result.Matched {
		t.Fatal("the pass made all")
	}
	for i, delta := range []desired.LinksDelta{deltaBetween(held, next), deltaBetween(next, next, mac(2)), deltaBetween(next, held)} {
		result := m.Apply(context.Background(), delta)
		if result.Look || !result.Part || !result.Settled || result.Matched {
			t.Errorf("part %d: look %v, part %v, settled %v, matched %v", i, result.Look, result.Part, result.Settled, result.Matched)
		}
		seen := map[plan.Object]bool{}
		for _, p := range result.Pending {
			if seen[p.Object] {
				t.Errorf("part %d: %s is pending twice", i, p.Object)
			}
			seen[p.Object] = true
		}
		if told := len(result.Conflicts) + len(result.Failures); told > 5 {
			t.Errorf("part %d: %d conflicts and failures", i, told)
		}
	}
}

// TestPartsBeforeAllIsMarked: a device of a version without marks, which is not wanted and
// carries a foreign link, never gets a mark. NICs of other vnets are parts all the same.
func TestPartsBeforeAllIsMarked(t *testing.T) {
	f := &plan.Fake{}
	f.AddNamespace("z1")
	f.AddNamespace("z2")
	m, _ := fakeManager(f)
	old := desired.VXLAN{VNet: 6, Local: addr("10.99.0.1"), Port: 4789, MTU: 1450}
	both := onVNet5(ownNIC(1, 5, "z1"))
	both.VXLANs = append(both.VXLANs, old)
	if _, err := m.Pass(context.Background(), clone(both), false); err != nil {
		t.Fatal(err)
	}
	f.Edit("", "sdcvxl6", func(l *plan.Link) { l.Alias, l.Group = "", 0 })
	if err := f.AddLink(plan.Link{Name: "theirs", Kind: "ipvlan", Parent: "sdcvxl6"}); err != nil {
		t.Fatal(err)
	}
	held := onVNet5(ownNIC(1, 5, "z1"))
	if result := mustPass(t, m, clone(held)); len(result.Conflicts) != 1 || m.numbers.Marked() {
		t.Fatalf("conflicts %v, marked %v", result.Conflicts, m.numbers.Marked())
	}
	next := onVNet5(ownNIC(1, 5, "z1"), ownNIC(2, 5, "z2"))
	result := m.Apply(context.Background(), deltaBetween(held, next))
	if result.Look || !result.Settled || len(result.Conflicts) != 1 || f.Find(plan.LinkKey{Namespace: "z2", Name: "fabric1"}) == nil {
		t.Errorf("a NIC more: look %v, settled %v, conflicts %v", result.Look, result.Settled, result.Conflicts)
	}
}

// TestPartForgetsRenames: the link of a NIC that is gone is not told as renamed.
func TestPartForgetsRenames(t *testing.T) {
	f := &plan.Fake{}
	f.AddNamespace("z1")
	f.AddNamespace("z2")
	m, _ := fakeManager(f)
	held := onVNet5(ownNIC(1, 5, "z1"), ownNIC(2, 5, "z2"))
	mustPass(t, m, clone(held))
	f.Rename("z1", "fabric0", "eth0")
	f.Rename("z2", "fabric1", "eth0")
	m.Apply(context.Background(), deltaBetween(held, held, mac(1), mac(2)))
	if got := m.Renamed(); len(got) != 2 {
		t.Fatalf("renamed: got %q, want two", got)
	}
	next := onVNet5(ownNIC(2, 5, "z2"))
	if result := m.Apply(context.Background(), deltaBetween(held, next)); !result.Matched {
		t.Fatalf("a NIC less: %v %v", result.Failures, result.Conflicts)
	}
	if got := m.Renamed(); len(got) != 1 {
		t.Errorf("renamed: got %q, want the one that is there", got)
	}
}

// TestPartSavesBeforeItActs: a number that a part recognized by a link, whatever that is
// called, is saved before the part changes anything.
func TestPartSavesBeforeItActs(t *testing.T) {
	f := &plan.Fake{}
	m, _ := fakeManager(f)
	held := onVNet5(ownNIC(1, 5, ""))
	mustPass(t, m, clone(held))
	if err := f.AddLink(plan.Link{Name: "fabric7", Kind: plan.KindMacvlan, Parent: "sdcvxl5", MAC: mac(2), Bridge: true, Index: plan.FirstIndex + 99}); err != nil {
		t.Fatal(err)
	}
	m.cfg.Save = func(plan.Numbers) error { return errors.New("disk full") }
	before := len(f.Done)
	result := m.Apply(context.Background(), deltaBetween(held, onVNet5(ownNIC(1, 5, ""), ownNIC(2, 5, ""))))
	if !result.Look || len(f.Done) != before {
		t.Errorf("look %v, %d steps without a saved number", result.Look, len(f.Done)-before)
	}
}

// TestForgedIndexInAPart: a guest gives its link the ifindex of another VM's link. Whatever a
// part sees or does of the guest's link, what is expected of the other one stays.
func TestForgedIndexInAPart(t *testing.T) {
	victim := plan.Link{Namespace: "z1", Name: "fabric0", Kind: plan.KindMacvlan, Index: plan.FirstIndex + 1, Ours: true, Known: "fabric0", MTU: 1400}
	forged := plan.Link{Namespace: "z2", Name: "fabric1", Kind: plan.KindMacvlan, Index: victim.Index, Ours: true, MTU: 1400}
	z2 := func(at plan.LinkKey) bool { return at.Namespace == "z2" }
	intact := func(t *testing.T, x *expected) {
		t.Helper()
		l := x.links[victim.Index]
		index, ok := x.indexOf(victim.Key())
		if l == nil || l.Key() != victim.Key() || l.MTU != victim.MTU || !ok || index != victim.Index {
			t.Errorf("expected of the other VM's link: %v, ifindex %d", l, index)
		}
	}
	for name, act := range map[string]func(x *expected){
		"made again": func(x *expected) {
			now := forged
			now.Index = plan.FirstIndex + 2
			x.learn([]plan.Link{now}, z2)
		},
		"gone": func(x *expected) { x.learn(nil, z2) },
		"deleted": func(x *expected) {
			x.noteStep(&plan.Step{Op: plan.OpDelLink, Namespace: "z2", Link: "fabric1"}, forged.Index)
		},
		"changed": func(x *expected) {
			x.noteStep(&plan.Step{Op: plan.OpSetLink, Namespace: "z2", Link: "fabric1", Spec: &plan.Link{MTU: 1300}, Change: plan.ChangeMTU}, forged.Index)
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newExpected()
			x.reset([]plan.Link{victim, forged})
			intact(t, x)
			act(x)
			intact(t, x)
		})
	}
}

// TestObservedThenRemoved: what was observed of links that are removed since is no reason for
// a pass, also not of those that go with the device below them.
func TestObservedThenRemoved(t *testing.T) {
	below := plan.Link{Name: "sdcvxl5", Kind: plan.KindVXLAN, Index: plan.FirstIndex + 1, Ours: true}
	above := plan.Link{Namespace: "z1", Name: "fabric0", Kind: plan.KindMacvlan, Parent: "sdcvxl5", Index: plan.FirstIndex + 2, Ours: true}
	for name, observe := range map[string]func(x *expected){
		"one of several notifications": func(x *expected) { x.doubtful[below.Index], x.doubtful[above.Index] = true, true },
		"a part is due":                func(x *expected) { x.mismatches(x.links[above.Index]) },
	} {
		t.Run(name, func(t *testing.T) {
			x := newExpected()
			x.reset([]plan.Link{below, above})
			observe(x)
			x.noteStep(&plan.Step{Op: plan.OpDelLink, Link: below.Name}, below.Index)
			changed := x.settle()
			entries, other := x.take()
			links, namespaces := x.takeStirred()
			if changed || other || len(entries)+len(links)+len(namespaces) > 0 {
				t.Errorf("settle %v, other %v, entries %v, links %v, namespaces %v; want nothing", changed, other, entries, links, namespaces)
			}
		})
	}
}
