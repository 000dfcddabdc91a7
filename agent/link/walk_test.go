package link

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rutter/agent/link/plan"
	"rutter/projections/desired"
)

// drawDesired draws a desired state from a small world, so that states overlap.
func drawDesired(t *rapid.T) desired.Links {
	var want desired.Links
	locals := []netip.Addr{addr("10.99.0.1"), addr("fd99::1")}
	for vnet := uint32(1); vnet <= 3; vnet++ {
		if !rapid.Bool().Draw(t, "vnet") {
			continue
		}
		mtu := rapid.SampledFrom([]uint32{1450, 1430}).Draw(t, "mtu")
		want.VXLANs = append(want.VXLANs, desired.VXLAN{VNet: vnet, Local: rapid.SampledFrom(locals).Draw(t, "local"), Port: 4789, MTU: mtu})
		vlan := uint16(0)
		if rapid.Bool().Draw(t, "tagged") {
			vlan, mtu = rapid.Uint16Range(1, 2).Draw(t, "vlan"), mtu-4
			want.VLANs = append(want.VLANs, desired.VLAN{VNet: vnet, ID: vlan, MTU: mtu})
		}
		for n := 1; n <= 3; n++ {
			if !rapid.Bool().Draw(t, "nic") {
				continue
			}
			drawNIC(t, &want, desired.Fabric{MAC: mac(n*10 + int(vnet)), VNet: vnet, VLAN: vlan, MTU: mtu})
		}
	}
	slices.SortFunc(want.Fabrics, func(a, b desired.Fabric) int { return a.MAC.Compare(b.MAC) })
	slices.SortFunc(want.Neighs, func(a, b desired.Neigh) int {
		if c := a.Link.Compare(b.Link); c != 0 {
			return c
		}
		return a.IP.Compare(b.IP)
	})
	return want
}

func drawNIC(t *rapid.T, want *desired.Links, w desired.Fabric) {
	w.Namespace = rapid.SampledFrom([]string{"", "z1", "z2"}).Draw(t, "namespace")
	host := rapid.IntRange(1, 3).Draw(t, "host")
	w.Addresses = []netip.Prefix{prefix(fmt.Sprintf("10.0.%d.%d/24", w.VNet, host))}
	w.Hold = rapid.Bool().Draw(t, "hold")
	if rapid.Bool().Draw(t, "gateway") {
		w.Gateway = addr(fmt.Sprintf("10.0.%d.%d", w.VNet, 250+host))
		w.Resolvers = []netip.Addr{w.Gateway}
	}
	want.Fabrics = append(want.Fabrics, w)
	for peer := range 3 {
		if rapid.Bool().Draw(t, "peer") {
			to := mac(1000 + rapid.IntRange(0, 1).Draw(t, "peer mac"))
			want.Neighs = append(want.Neighs, desired.Neigh{Link: w.MAC, IP: addr(fmt.Sprintf("10.0.%d.%d", w.VNet, 100+peer)), MAC: to})
		}
	}
	remote := desired.FDB{VNet: w.VNet, MAC: mac(1000), Dst: rapid.SampledFrom([]netip.Addr{addr("10.99.0.2"), addr("10.99.0.3")}).Draw(t, "dst")}
	if !slices.ContainsFunc(want.FDB, func(e desired.FDB) bool { return e.VNet == w.VNet }) {
		want.FDB = append(want.FDB, remote)
	}
}

// linksOf returns all links of a fake kernel that carry one of our names.
func linksOf(f *plan.Fake) []plan.Link {
	have, _ := f.Dump(context.Background(), []string{"z1", "z2"})
	return have.Links
}

// vandalise makes changes as another program would.
func vandalise(t *rapid.T, f *plan.Fake) {
	links := linksOf(f)
	if len(links) == 0 {
		return
	}
	l := rapid.SampledFrom(links).Draw(t, "victim")
	if plan.KindOfName(l.Name) != l.Kind {
		return
	}
	edit := func(change func(l *plan.Link)) { f.Edit(l.Namespace, l.Name, change) }
	switch rapid.IntRange(0, 5).Draw(t, "damage") {
	case 0:
		f.DeleteLink(l.Namespace, l.Name)
	case 1:
		edit(func(l *plan.Link) { l.Up, l.Neighs = false, nil })
	case 2:
		edit(func(l *plan.Link) { l.FDB, l.Addresses = nil, nil })
	case 3:
		lowerMTU(f, &l, 1300)
	case 4:
		edit(func(l *plan.Link) { l.Proxy, l.Bridge = false, false })
	case 5:
		if l.Kind == plan.KindMacvlan {
			edit(func(l *plan.Link) { l.MAC = mac(666) })
		}
	}
}

// lowerMTU lowers the MTU of a link and of those above it, as the kernel does.
func lowerMTU(f *plan.Fake, l *plan.Link, mtu uint32) {
	f.Edit(l.Namespace, l.Name, func(l *plan.Link) { l.MTU = min(l.MTU, mtu) })
	for _, child := range linksOf(f) {
		if l.Namespace == "" && child.Parent == l.Name {
			lowerMTU(f, &child, mtu)
		}
	}
}

func TestPlanRandomWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &plan.Fake{}
		f.AddNamespace("z1")
		f.AddNamespace("z2")
		foreign := plan.Link{Name: "vx9v9", Kind: "dummy", MTU: 1500, MAC: mac(9)}
		if err := f.AddLink(foreign); err != nil {
			t.Fatal(err)
		}
		m := NewManager(ManagerConfig{Kernel: f})
		for range rapid.IntRange(1, 5).Draw(t, "states") {
			want := drawDesired(t)
			for range rapid.IntRange(0, 3).Draw(t, "damages") {
				vandalise(t, f)
			}
			complete := rapid.Bool().Draw(t, "complete")
			if _, err := m.Pass(context.Background(), want, complete); err != nil {
				t.Fatal(err)
			}
			result, err := m.Pass(context.Background(), want, true)
			if err != nil || !result.Matched {
				t.Fatalf("complete pass: %v, failures %v, conflicts %v\n%s", err, result.Failures, result.Conflicts, f)
			}
			if result, err = m.Pass(context.Background(), want, true); err != nil || len(result.Steps) != 0 {
				t.Fatalf("pass without change: %v, steps %v", err, result.Steps)
			}
			if !f.Edit("", foreign.Name, func(l *plan.Link) {
				if l.Kind != "dummy" || l.MTU != 1500 {
					t.Fatal("the foreign link was touched")
				}
			}) {
				t.Fatal("the foreign link is gone")
			}
			if got, expect := len(linksOf(f)), 1+len(want.VXLANs)+len(want.VLANs)+len(want.Fabrics); got != expect {
				t.Fatalf("links: got %d, want %d\n%s", got, expect, f)
			}
		}
	})
}
