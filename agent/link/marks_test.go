package link

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

var clusterA, clusterB = log.UUID{1, 15: 0xa}, log.UUID{1, 15: 0xb}

// nodeA and nodeB are compute nodes that one machine is.
var nodeA, nodeB = log.UUID{2, 15: 0xa}, log.UUID{2, 15: 0xb}

// owner is a Manager over a real kernel whose numbers outlive it, as the agent's do.
type owner struct {
	*Manager
	w     *world
	h     *Netlink
	saved []byte
}

// own starts a Manager of a cluster with saved numbers.
func (w *world) own(cluster log.UUID, saved []byte, undo bool) *owner {
	w.t.Helper()
	o := &owner{w: w, h: w.open("cn1"), saved: saved}
	cfg := ManagerConfig{Kernel: o.h, UndoRenames: undo, Save: func(n plan.Numbers) (err error) {
		o.saved, err = json.Marshal(n)
		return err
	}}
	if saved != nil {
		if err := json.Unmarshal(saved, &cfg.Numbers); err != nil {
			w.t.Fatal(err)
		}
	}
	o.Manager = NewManager(cfg)
	o.SetOwner(cluster, nodeA)
	return o
}

// again is the same after a restart of the agent.
func (o *owner) again() *owner { return o.w.own(o.numbers.Cluster(), o.saved, o.cfg.UndoRenames) }

// quiet makes a pass that must match and do nothing.
func (o *owner) quiet(what string, want desired.Links) {
	o.w.t.Helper()
	if result := o.w.pass(o.Manager, want); len(result.Steps) != 0 {
		o.w.t.Fatalf("%s: a pass did %v, want nothing", what, texts(result.Steps))
	}
}

// alter changes a link as any program can.
func (w *world) alter(namespace string, index int32, body func(e *wire.Encoder)) {
	w.t.Helper()
	w.raw(namespace, unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.LinkHeader(index, 0, 0); body(e) })
}

func (w *world) rename(namespace string, index int32, name string) {
	w.t.Helper()
	w.alter(namespace, index, func(e *wire.Encoder) { e.AttrText(unix.IFLA_IFNAME, name) })
}

// bridge makes a link that is nothing of ours. index 0: the kernel chooses.
func (w *world) bridge(namespace, name string, index int32) {
	w.t.Helper()
	w.raw(namespace, unix.RTM_NEWLINK, flagsCreate, func(e *wire.Encoder) {
		e.LinkHeader(index, 0, 0)
		e.AttrText(unix.IFLA_IFNAME, name)
		e.Nest(unix.IFLA_LINKINFO, func() { e.AttrText(unix.IFLA_INFO_KIND, "bridge") })
	})
}

// remove deletes a link as any program can.
func (w *world) remove(namespace string, index int32) {
	w.t.Helper()
	w.raw(namespace, unix.RTM_DELLINK, 0, func(e *wire.Encoder) { e.LinkHeader(index, 0, 0) })
}

// stranger makes a VXLAN device as another program would: with a name of ours, and without
// a mark. index 0: the kernel chooses.
func (w *world) stranger(vnet uint32, name string, index int32) {
	w.t.Helper()
	spec := &plan.Link{Name: name, MTU: 1400, VNI: vnet, Local: addr("10.99.0.1"), Port: 4789}
	if index == 0 { // then only the ifindex differs from ours
		spec.Proxy, spec.L2Miss, spec.L3Miss = true, true, true
	}
	w.raw("cn1", unix.RTM_NEWLINK, flagsCreate, func(e *wire.Encoder) { e.VXLAN(spec, index) })
}

// links reads all links of a namespace, without what is on them, by their names.
func (w *world) links(namespace string) map[string]plan.Link {
	w.t.Helper()
	sp, err := openNamespaceConn(namespace, filepath.Join(w.dir, namespace))
	if err != nil {
		w.t.Fatal(err)
	}
	defer sp.close()
	raw, err := listLinks(sp.conn)
	if err != nil {
		w.t.Fatal(err)
	}
	links := map[string]plan.Link{}
	for _, l := range raw {
		links[l.Name] = l.Link
	}
	return links
}

// TestGuestRenamesItsLink (SAFETY L3): a link that a guest renames, as netplan, udev and
// cloud-init do, is programmed, healed and deleted under its new name, also after a
// restart, and while another link has its old name.
func TestGuestRenamesItsLink(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	a, _ := w.two(0, false)
	o := w.own(clusterA, nil, false)
	w.pass(o.Manager, a)
	index := w.links("zA")["fabric0"].Index
	w.rename("zA", index, "eth0")
	w.bridge("zA", "fabric0", 0)
	for _, restart := range []bool{false, true} {
		if restart {
			o = o.again()
		}
		o.quiet("renamed", a)
		if names := o.Renamed(); len(names) != 1 || names[0] != "eth0 in namespace zA was made as fabric0" {
			t.Errorf("renamed: got %q", names)
		}
		delta := desired.LinksDelta{Neighs: []desired.Neigh{{Link: mac(1), IP: addr("192.168.5.2"), MAC: mac(9)}}}
		if result := o.Apply(context.Background(), delta); len(result.Steps) != 1 || !result.Matched {
			t.Errorf("an entry of the renamed link: %v, matched %v", texts(result.Steps), result.Matched)
		}
		w.pass(o.Manager, a)
		w.raw("zA", unix.RTM_DELADDR, 0, func(e *wire.Encoder) { e.Address(plan.Step{Prefix: prefix("192.168.5.1/24")}, index) })
		if result := w.pass(o.Manager, a); len(result.Steps) == 0 {
			t.Error("an address of the renamed link was not set again")
		}
	}
	w.pass(o.Manager, desired.Links{VXLANs: a.VXLANs, FDB: a.FDB})
	if links := w.links("zA"); links["eth0"].Index != 0 || links["fabric0"].Kind != "bridge" {
		t.Errorf("after the NIC is gone: %v, want the foreign link only", links)
	}
	w.pass(o.Manager, a)
	made := w.links("zA")["fabric1"]
	if made.MAC != mac(1) {
		t.Errorf("a new link beside a foreign fabric0: %v, want fabric1", w.links("zA"))
	}
	w.remove("zA", made.Index)
	w.bridge("zA", "fabric1", 0)
	result, err := o.Pass(context.Background(), a, true)
	if err != nil || len(result.Conflicts) != 1 || !strings.Contains(result.Conflicts[0].String(), "fabric1 in namespace zA is there, and not ours") {
		t.Errorf("the guest deleted its link and took the name: %v, %v, want the link in the way", result.Conflicts, err)
	}
	if links := w.links("zA"); links["fabric0"].Kind != "bridge" || links["fabric1"].Kind != "bridge" {
		t.Errorf("the foreign links: %v", links)
	}
}

// TestRenamesAreNoticedAndAccepted: between passes too, and without a failure.
func TestRenamesAreNoticedAndAccepted(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	a, _ := w.two(0, false)
	g := guard(w, a, time.Hour)
	w.pass(g.m, a)
	index := w.links("zA")["fabric0"].Index
	w.rename("zA", index, "eth0")
	drift := 0
	g.wait("rename", &drift, func() bool { return len(g.m.Renamed()) == 1 })
	w.raw("zA", unix.RTM_DELNEIGH, 0, func(e *wire.Encoder) { e.Neigh(plan.Step{Op: plan.OpDelNeigh, Addr: addr("192.168.5.2")}, index) })
	g.wait("neighbour of the renamed link", &drift, g.matches)
	if drift != 1 {
		t.Errorf("drift: got %d steps, want the neighbour only", drift)
	}
}

// TestRenameIsUndone: with UndoRenames a link gets its name back as soon as that is free.
func TestRenameIsUndone(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	a, _ := w.two(0, false)
	o := w.own(clusterA, nil, true)
	w.pass(o.Manager, a)
	index, device := w.links("zA")["fabric0"].Index, w.links("cn1")["sdcvxl5"].Index
	w.rename("zA", index, "eth0")
	w.rename("cn1", device, "mine")
	w.pass(o.Manager, a)
	if w.links("zA")["fabric0"].Index != index || w.links("cn1")["sdcvxl5"].Index != device {
		t.Fatalf("names: got %v and %v, want fabric0 and sdcvxl5 again", w.links("zA"), w.links("cn1"))
	}
	w.rename("zA", index, "eth0")
	w.bridge("zA", "fabric0", 300)
	o.quiet("the old name is taken", a)
	w.remove("zA", 300)
	w.pass(o.Manager, a)
	if w.links("zA")["fabric0"].Index != index {
		t.Errorf("names: got %v, want fabric0 again", w.links("zA"))
	}
}

// TestForeignLinkWithOurNameStays (SAFETY L3): a link without our mark is not touched,
// whatever it is called, also by an agent that starts for the first time. If it is in the
// way, the failure names it and says what to do.
func TestForeignLinkWithOurNameStays(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	a, _ := w.two(0, false)
	w.stranger(999, "sdcvxl999", 0)
	w.stranger(998, "sdcvxl998", plan.FirstIndex+77)
	before := w.links("cn1")
	o := w.own(clusterA, nil, false)
	for range 2 {
		w.pass(o.Manager, a)
		o = o.again()
	}
	a.VXLANs = append(a.VXLANs, desired.VXLAN{VNet: 999, Local: addr("10.99.0.1"), Port: 4789, MTU: 1450})
	for range 2 {
		result, err := o.Pass(context.Background(), a, true)
		if err != nil || len(result.Conflicts) != 1 || !errors.Is(result.Conflicts[0].Err, plan.ErrForeign) || len(result.Failures) != 0 {
			t.Fatalf("conflicts: got %v, failures %v, %v, want the foreign link", result.Conflicts, result.Failures, err)
		}
		if text := result.Conflicts[0].String(); !strings.Contains(text, "sdcvxl999 is there, and not ours") || !strings.Contains(text, "rename or remove it") {
			t.Errorf("conflict: got %q", text)
		}
	}
	for name, was := range before {
		if is := w.links("cn1")[name]; is.Index != was.Index || is.MTU != was.MTU || is.Up != was.Up {
			t.Errorf("%s: got %v, want %v", name, is, was)
		}
	}
	w.remove("cn1", before["sdcvxl999"].Index)
	w.pass(o.Manager, a)
}

// TestRenamedDeviceIsOurs: in the node's own namespace too, also when it is found again
// after a restart, and when its name is needed for another link of ours.
func TestRenamedDeviceIsOurs(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	a, _ := w.two(0, false)
	o := w.own(clusterA, nil, false)
	w.pass(o.Manager, a)
	index := w.links("cn1")["sdcvxl5"].Index
	w.rename("cn1", index, "sdcvxl6")
	o.quiet("renamed", a)
	o = o.again()
	o.quiet("renamed, after a restart", a)
	more := a
	more.VXLANs = append(slices.Clone(a.VXLANs), desired.VXLAN{VNet: 6, Local: addr("10.99.0.1"), Port: 4789, MTU: 1450})
	w.pass(o.Manager, more)
	if links := w.links("cn1"); links["sdcvxl5"].Index != index || links["sdcvxl6"].VNI != 6 {
		t.Errorf("links: got %v, want sdcvxl5 renamed back, and sdcvxl6", links)
	}
	w.rename("cn1", index, "mine")
	w.pass(o.again().Manager, desired.Links{})
	if links := w.links("cn1"); len(links) != 2 {
		t.Errorf("after all is unwanted: %v, want lo and net0", links)
	}
}

// TestKilledBeforeTheMark (SAFETY L3): links that were made, and did not get their alias
// before the process was killed, are known by their group: the next process completes
// them, or deletes them if they are not wanted any more.
func TestKilledBeforeTheMark(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	a, _ := w.two(0, false)
	for _, wanted := range []bool{true, false} {
		o := w.own(clusterA, nil, false)
		w.pass(o.Manager, a)
		w.pass(o.Manager, desired.Links{})
		o = o.again()
		if err := o.assign(a, plan.Snapshot{}); err != nil { // as a pass does before it makes links
			t.Fatal(err)
		}
		device, fabric := int32(plan.FirstIndex+500), int32(plan.FirstIndex+501)
		var made []*plan.Link
		for _, s := range plan.Plan(a, plan.Snapshot{}, o.numbers, true).Steps {
			if s.Op == plan.OpAddLink {
				made = append(made, s.Spec)
			}
		}
		w.raw("cn1", unix.RTM_NEWLINK, flagsCreate, func(e *wire.Encoder) { e.VXLAN(made[0], device) })
		sp, err := openNamespaceConn("zA", filepath.Join(w.dir, "zA"))
		if err != nil {
			t.Fatal(err)
		}
		w.raw("cn1", unix.RTM_NEWLINK, flagsCreate, func(e *wire.Encoder) { e.Macvlan(made[1], fabric, device, int(sp.file.Fd())) })
		if err := sp.close(); err != nil {
			t.Fatal(err)
		}
		if l := w.links("cn1")["sdcvxl5"]; l.Alias != "" || l.Group != plan.GroupOf(clusterA) {
			t.Fatalf("the kernel makes a link with alias %q and group %d", l.Alias, l.Group)
		}
		o = o.again()
		if !wanted {
			w.pass(o.Manager, desired.Links{})
			if links := w.links("cn1"); len(links) != 2 {
				t.Errorf("not wanted: %v, want lo and net0", links)
			}
			continue
		}
		w.pass(o.Manager, a)
		for namespace, name := range map[string]string{"cn1": "sdcvxl5", "zA": "fabric0"} {
			mark, ok := plan.ParseMark(w.links(namespace)[name].Alias)
			if index := w.links(namespace)[name].Index; !ok || mark.Cluster != clusterA || index != device && index != fabric {
				t.Errorf("%s: ifindex %d, mark %+v, want the same link with its mark", name, index, mark)
			}
		}
		w.pass(o.Manager, desired.Links{})
	}
}

// TestForgedMarks (SAFETY L3): what a guest writes on its links, and which links it makes,
// changes nothing of other VMs or of the node. Its own link is healed, and the passes end.
func TestForgedMarks(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	w.namespace("z0")
	a, _ := w.two(0, false)
	want := a
	want.Fabrics = append(slices.Clone(a.Fabrics), desired.Fabric{MAC: mac(50), VNet: 5, MTU: a.Fabrics[0].MTU, Namespace: "z0"})
	o := w.own(clusterA, nil, false)
	w.pass(o.Manager, want)
	mine, others, device := w.links("zA")["fabric0"], w.links("z0")["fabric1"], w.links("cn1")["sdcvxl5"]
	untouched := func(what string) {
		t.Helper()
		if b, d := w.links("z0")["fabric1"], w.links("cn1")["sdcvxl5"]; b.Index != others.Index || b.Alias != others.Alias || d.Index != device.Index || d.Alias != device.Alias {
			t.Fatalf("%s: the other VM's link is %v, the device %v", what, b, d)
		}
	}
	forgeries := []struct {
		name string
		do   func(e *wire.Encoder)
	}{
		{"cleared", func(e *wire.Encoder) { e.AttrText(unix.IFLA_IFALIAS, ""); e.Attr32(unix.IFLA_GROUP, 0) }},
		{"of another VM", func(e *wire.Encoder) { e.AttrText(unix.IFLA_IFALIAS, others.Alias) }},
		{"of the device", func(e *wire.Encoder) { e.AttrText(unix.IFLA_IFALIAS, device.Alias) }},
		{"of another cluster", func(e *wire.Encoder) {
			e.AttrText(unix.IFLA_IFALIAS, plan.Mark{Cluster: clusterB, Object: "nic " + mac(1).String()}.String())
			e.Attr32(unix.IFLA_GROUP, plan.GroupOf(clusterB))
		}},
		{"renamed and cleared", func(e *wire.Encoder) {
			e.AttrText(unix.IFLA_IFNAME, "fabric1")
			e.AttrText(unix.IFLA_IFALIAS, "")
			e.Attr32(unix.IFLA_GROUP, plan.TrashGroup)
		}},
	}
	for _, forgery := range forgeries {
		for _, restart := range []bool{false, true} {
			w.alter("zA", mine.Index, forgery.do)
			if restart {
				o = o.again()
			}
			w.pass(o.Manager, want)
			o.quiet(forgery.name, want)
			untouched(forgery.name)
			if l := w.links("zA")["fabric0"]; forgery.name != "renamed and cleared" && (l.Index != mine.Index || l.Alias != mine.Alias || l.Group != mine.Group) {
				t.Errorf("%s, restart %v: got %v %q, want the mark again", forgery.name, restart, l, l.Alias)
			}
		}
		w.alter("zA", mine.Index, func(e *wire.Encoder) { e.AttrText(unix.IFLA_IFNAME, "fabric0") })
	}
	w.pass(o.Manager, want)

	// Links of the guest's own, with every sign of ours. The kernel puts a macvlan on a
	// macvlan onto the device below.
	forge := func(name string, index int32, mac log.MAC, alias string) {
		w.raw("zA", unix.RTM_NEWLINK, flagsCreate, func(e *wire.Encoder) {
			e.Macvlan(&plan.Link{Name: name, MTU: 1400, MAC: mac, Group: mine.Group}, index, mine.Index, -1)
		})
		w.alter("zA", index, func(e *wire.Encoder) { e.AttrText(unix.IFLA_IFALIAS, alias) })
	}
	forge("fabric1", plan.FirstIndex+900, mac(77), others.Alias)
	forge("fabric2", others.Index, mac(78), mine.Alias)
	forge("fabric8", math.MaxInt32, mac(79), device.Alias)
	for _, restart := range []bool{false, true} {
		if restart {
			o = o.again()
		}
		w.pass(o.Manager, want)
		o.quiet("forged links", want)
		untouched("forged links")
	}
	// The node does nothing about them: a guest may make any number.
	if l := w.links("zA"); l["fabric0"].Index != mine.Index || l["fabric1"].MAC != mac(77) || l["fabric2"].Index != others.Index || l["fabric8"].Index != math.MaxInt32 {
		t.Errorf("the VM's own links: %v", l)
	}
	// A new VM gets its link, its number is not the guest's to choose, and the marks of
	// misses are those of the right VM.
	w.namespace("zC")
	want.Fabrics = append(want.Fabrics, desired.Fabric{MAC: mac(60), VNet: 5, MTU: a.Fabrics[0].MTU, Namespace: "zC"})
	w.pass(o.Manager, want)
	if l := w.links("zC")["fabric2"]; l.MAC != mac(60) {
		t.Errorf("the new VM: %v", w.links("zC"))
	}
	if l := o.h.expected.links[others.Index]; l.Namespace != "z0" {
		t.Errorf("ifindex %d is taken for a link in %s", others.Index, l.Namespace)
	}
	// A copied mark in the node's own namespace is of another device.
	w.stranger(999, "sdcvxl999", plan.FirstIndex+901)
	w.alter("cn1", plan.FirstIndex+901, func(e *wire.Encoder) { e.AttrText(unix.IFLA_IFALIAS, device.Alias) })
	w.pass(o.Manager, want)
	w.pass(o.again().Manager, desired.Links{})
	if links := w.links("cn1"); links["sdcvxl999"].VNI != 999 || len(links) != 3 {
		t.Errorf("after all is unwanted: %v, want the foreign device only", links)
	}
}

// TestForeignMACIsNamed: a guest that has the MAC of another VM's NIC on the same device
// holds up that NIC only, and the failure names its link.
func TestForeignMACIsNamed(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	w.namespace("zB")
	a, _ := w.two(0, false)
	o := w.own(clusterA, nil, false)
	w.pass(o.Manager, a)
	w.raw("zA", unix.RTM_NEWLINK, flagsCreate, func(e *wire.Encoder) {
		e.Macvlan(&plan.Link{Name: "mine", MTU: 1400, MAC: mac(50)}, 400, w.links("zA")["fabric0"].Index, -1)
	})
	want := a
	want.Fabrics = append(slices.Clone(a.Fabrics), desired.Fabric{MAC: mac(50), VNet: 5, MTU: a.Fabrics[0].MTU, Namespace: "zB"})
	result, err := o.Pass(context.Background(), want, true)
	if err != nil || len(result.Conflicts) != 1 || !strings.Contains(result.Conflicts[0].String(), "mine in namespace zA has MAC "+mac(50).String()) {
		t.Fatalf("conflicts: got %v, failures %v, %v", result.Conflicts, result.Failures, err)
	}
	w.remove("zA", 400)
	w.pass(o.Manager, want)
}

// TestLinksOfVersionsWithoutMarks (SAFETY L3): they are adopted once, as they are, by all
// of their properties. Later, a link without a mark is foreign.
func TestLinksOfVersionsWithoutMarks(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	a, _ := w.two(0, false)
	left := a
	left.VXLANs = append(slices.Clone(a.VXLANs), desired.VXLAN{VNet: 77, Local: addr("10.99.0.1"), Port: 4789, MTU: 1450})
	o := w.own(clusterA, nil, false)
	w.pass(o.Manager, left)
	unmark := func(namespace, name string) {
		w.alter(namespace, w.links(namespace)[name].Index, func(e *wire.Encoder) { e.AttrText(unix.IFLA_IFALIAS, ""); e.Attr32(unix.IFLA_GROUP, 0) })
	}
	unmark("cn1", "sdcvxl5")
	unmark("cn1", "sdcvxl77")
	unmark("zA", "fabric0")
	w.stranger(999, "sdcvxl999", 0)
	w.stranger(998, "sdcvxl998", plan.FirstIndex+90)
	before := map[string]map[string]plan.Link{"cn1": w.links("cn1"), "zA": w.links("zA")}
	old := w.own(clusterA, []byte(`{"`+mac(1).String()+`":{"n":0,"namespaces":["zA"]}}`), false)
	result := w.pass(old.Manager, a)
	for _, s := range result.Steps {
		if s.Op == plan.OpAddLink || s.Op == plan.OpDelLink && s.Link != "sdcvxl77" {
			t.Errorf("step %s", s)
		}
	}
	for namespace, name := range map[string]string{"cn1": "sdcvxl5", "zA": "fabric0"} {
		if l := w.links(namespace)[name]; l.Index != before[namespace][name].Index || l.Group != plan.GroupOf(clusterA) {
			t.Errorf("%s: got %v, group %d, want the same link, marked", name, l, l.Group)
		}
	}
	links := w.links("cn1")
	if links["sdcvxl77"].Index != 0 {
		t.Error("what an older version left behind is still there")
	}
	for _, name := range []string{"sdcvxl998", "sdcvxl999"} {
		if l := links[name]; l.Index != before["cn1"][name].Index || l.Group != 0 {
			t.Errorf("%s: got %v, group %d, want it untouched", name, l, l.Group)
		}
	}
	unmark("cn1", "sdcvxl5")
	if result, err := old.again().Pass(context.Background(), a, true); err != nil || len(result.Conflicts) == 0 || !strings.Contains(result.Conflicts[0].String(), "sdcvxl5 is there, and not ours (kind \"vxlan\", without our mark)") {
		t.Errorf("without a mark, later: conflicts %v, %v, want sdcvxl5", result.Conflicts, err)
	}
}

// TestTwoClusters (SAFETY L3): the agents of two clusters on one node leave each other's
// links alone, whatever each finds when it starts, and a node that changes its cluster
// takes its links along.
func TestTwoClusters(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	a, _ := w.two(0, false)
	other := desired.Links{VXLANs: []desired.VXLAN{{VNet: 8, Local: addr("10.99.0.1"), Port: 4789, MTU: 1450}}}
	first, second := w.own(clusterA, nil, false), w.own(clusterB, nil, false)
	for range 2 {
		w.pass(first.Manager, a)
		w.pass(second.Manager, other)
		first, second = first.again(), second.again()
	}
	first.quiet("beside another cluster", a)
	both := other
	both.VXLANs = append(slices.Clone(a.VXLANs), other.VXLANs...)
	result, err := second.Pass(context.Background(), both, true)
	if err != nil || len(result.Conflicts) != 1 || !strings.Contains(result.Conflicts[0].String(), "sdcvxl5 is there, and not ours (kind \"vxlan\", marked for vxlan 5 by cluster "+clusterA.String()) {
		t.Errorf("a vnet of both: conflicts %v, %v, want one that names the cluster", result.Conflicts, err)
	}
	w.pass(second.Manager, desired.Links{})
	// A cache that was lost: what the other cluster marked is counted, and is taken over
	// only when a hold for it has ended.
	fresh := w.own(clusterB, nil, false)
	if s, err := fresh.Surplus(context.Background(), nil, desired.Links{}); err != nil || len(s.Gone) != 2 {
		t.Errorf("surplus: %+v, %v, want the two links of the other cluster", s, err)
	}
	w.pass(fresh.Manager, desired.Links{})
	first.quiet("after the other cluster's links are gone", a)

	index := w.links("cn1")["sdcvxl5"].Index
	first.SetOwner(clusterB, nodeA) // restored: another log
	if result := w.pass(first.Manager, a); len(result.Drift) != 0 {
		t.Errorf("new marks were counted as drift: %v", texts(result.Drift))
	}
	if l := w.links("cn1")["sdcvxl5"]; l.Index != index || l.Group != plan.GroupOf(clusterB) {
		t.Errorf("after a change of the cluster: %v, group %d, want the same link with another mark", l, l.Group)
	}
	first.again().quiet("after a change of the cluster", a)
}
