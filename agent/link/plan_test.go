package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/projections"
)

func mac(n int) log.MAC { return log.MAC{0x02, 0, 0, 0, byte(n >> 8), byte(n)} }

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// sample is a node with a tagged and an untagged fabric.
func sample() projections.Desired {
	return projections.Desired{
		VXLANs: []projections.VXLAN{
			{VNet: 5, Local: addr("10.99.0.1"), Port: 4789, MTU: 1450},
			{VNet: 6, Local: addr("10.99.0.1"), Port: 4789, MTU: 1450},
		},
		VLANs: []projections.VLAN{{VNet: 5, ID: 7, MTU: 1446}},
		Fabrics: []projections.Fabric{
			{
				MAC: mac(1), VNet: 5, VLAN: 7, MTU: 1446, Namespace: "z1",
				Addresses: []netip.Prefix{prefix("10.0.0.1/24")}, Gateway: addr("10.0.0.254"),
				Routes:    []projections.Route{{Dst: prefix("10.5.0.0/16"), Gateway: addr("10.0.0.9")}},
				Resolvers: []netip.Addr{addr("8.8.8.8")},
			},
			{MAC: mac(2), VNet: 6, MTU: 1400, Addresses: []netip.Prefix{prefix("fd00::2/64")}},
		},
		Neighs: []projections.Neigh{{Link: mac(1), IP: addr("10.0.0.3"), MAC: mac(3)}},
		FDB:    []projections.FDB{{VNet: 5, MAC: mac(3), Dst: addr("10.99.0.2")}},
	}
}

func numbersFor(want projections.Desired) Numbers {
	var numbers Numbers
	for _, f := range want.Fabrics {
		numbers.Assign(f.MAC, nil)
		numbers.Put(f.MAC, f.Namespace)
	}
	return numbers
}

func namespacesOf(want projections.Desired) []string {
	var names []string
	for _, f := range want.Fabrics {
		names = append(names, f.Namespace)
	}
	return searched(names, nil)
}

// apply plans and does once, and fails if the kernel is not as wanted then.
func apply(t *testing.T, f *Fake, want projections.Desired, numbers Numbers) []string {
	t.Helper()
	have, _ := f.Dump(context.Background(), searched(namespacesOf(want), numbers.Namespaces()))
	work := Plan(want, have, numbers, true)
	if errs := f.Do(context.Background(), work.Steps); errs != nil {
		t.Fatalf("do: %v", errors.Join(errs...))
	}
	have, _ = f.Dump(context.Background(), searched(namespacesOf(want), numbers.Namespaces()))
	if again := Plan(want, have, numbers, true); len(again.Steps) != 0 {
		t.Fatalf("second plan: got %v, want nothing", again.Steps)
	}
	return texts(work.Steps)
}

func texts(steps []Step) []string {
	var list []string
	for _, s := range steps {
		list = append(list, s.String())
	}
	return list
}

func made(t *testing.T) (*Fake, projections.Desired, Numbers) {
	t.Helper()
	f := &Fake{}
	f.AddNamespace("z1")
	f.AddNamespace("z2")
	want := sample()
	numbers := numbersFor(want)
	apply(t, f, want, numbers)
	return f, want, numbers
}

func TestPlanFromNothing(t *testing.T) {
	f := &Fake{}
	f.AddNamespace("z1")
	want := sample()
	got := apply(t, f, want, numbersFor(want))
	expect := []string{
		"ip link add sdcvxl5 mtu 1450 up type vxlan id 5 local 10.99.0.1 dstport 4789 nolearning proxy l2miss l3miss",
		"ip link add sdcvxl6 mtu 1450 up type vxlan id 6 local 10.99.0.1 dstport 4789 nolearning proxy l2miss l3miss",
		"ip link add link sdcvxl5 name vx5v7 mtu 1446 up type vlan protocol 802.1Q id 7",
		"ip link add link vx5v7 name fabric0 netns z1 address 02:00:00:00:00:01 mtu 1446 up type macvlan mode bridge",
		"ip link add link sdcvxl6 name fabric1 address 02:00:00:00:00:02 mtu 1400 up type macvlan mode bridge",
		"ip -n z1 ntable change name arp_cache dev fabric0 app_probes 1 mcast_probes 0",
		"ip -n z1 ntable change name ndisc_cache dev fabric0 app_probes 1 mcast_probes 0",
		"ip -n z1 addr replace 10.0.0.1/24 dev fabric0",
		"ip ntable change name arp_cache dev fabric1 app_probes 1 mcast_probes 0",
		"ip ntable change name ndisc_cache dev fabric1 app_probes 1 mcast_probes 0",
		"ip addr replace fd00::2/64 dev fabric1",
		"bridge fdb replace 02:00:00:00:00:03 dev sdcvxl5 dst 10.99.0.2 self permanent",
		"ip -n z1 neigh replace 10.0.0.3 lladdr 02:00:00:00:00:03 dev fabric0 nud permanent",
		"ip -n z1 route replace default via 10.0.0.254 dev fabric0 proto 82",
		"ip -n z1 route replace 10.5.0.0/16 via 10.0.0.9 dev fabric0 proto 82",
		`write resolv.conf of z1: "# written by rutter; changes are lost\nnameserver 8.8.8.8\n"`,
	}
	if !slices.Equal(got, expect) {
		t.Errorf("steps: got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(expect, "\n"))
	}
}

func TestPlanChanges(t *testing.T) {
	tests := []struct {
		name   string
		change func(f *Fake, want *projections.Desired)
		steps  []string
	}{
		{"nic moves between nodes", func(_ *Fake, want *projections.Desired) {
			want.FDB[0].Dst = addr("10.99.0.3")
		}, []string{"bridge fdb replace 02:00:00:00:00:03 dev sdcvxl5 dst 10.99.0.3 self permanent"}},
		{"gateway", func(_ *Fake, want *projections.Desired) {
			want.Fabrics[0].Gateway = addr("10.0.1.1")
		}, []string{"ip -n z1 route replace default via 10.0.1.1 dev fabric0 onlink proto 82"}},
		{"held vm", func(_ *Fake, want *projections.Desired) {
			w := &want.Fabrics[0]
			w.Hold, w.Gateway, w.MTU, w.Routes, w.Resolvers = true, addr("10.0.0.7"), 1300, nil, nil
		}, nil},
		{"neighbour and entry go", func(_ *Fake, want *projections.Desired) {
			want.FDB, want.Neighs = nil, nil
		}, []string{"ip -n z1 neigh del 10.0.0.3 dev fabric0", "bridge fdb del 02:00:00:00:00:03 dev sdcvxl5 self"}},
		{"new address before the old goes", func(_ *Fake, want *projections.Desired) {
			want.Fabrics[0].Addresses = []netip.Prefix{prefix("10.0.0.2/24")}
		}, []string{"ip -n z1 addr replace 10.0.0.2/24 dev fabric0", "ip -n z1 addr del 10.0.0.1/24 dev fabric0"}},
		{"somebody changed mac, mtu and state", func(f *Fake, _ *projections.Desired) {
			f.Edit("", "fabric1", func(l *Link) { l.MAC, l.MTU, l.Up = mac(99), 1300, false })
		}, []string{"ip link set fabric1 address 02:00:00:00:00:02 mtu 1400 up"}},
		{"a vnet goes, from below", func(_ *Fake, want *projections.Desired) {
			want.VXLANs, want.VLANs, want.Fabrics = want.VXLANs[1:], nil, want.Fabrics[1:]
			want.FDB, want.Neighs = nil, nil
		}, []string{"rm z1", "ip link del sdcvxl5"}},
		{"wrong underlay address rebuilds the stack", func(_ *Fake, want *projections.Desired) {
			want.VXLANs[1].Local = addr("10.99.0.9")
		}, []string{
			"ip link del sdcvxl6",
			"ip link add sdcvxl6 mtu 1450 up type vxlan id 6 local 10.99.0.9 dstport 4789 nolearning proxy l2miss l3miss",
			"ip link add link sdcvxl6 name fabric1 address 02:00:00:00:00:02 mtu 1400 up type macvlan mode bridge",
			"ip ntable change name arp_cache dev fabric1 app_probes 1 mcast_probes 0",
			"ip ntable change name ndisc_cache dev fabric1 app_probes 1 mcast_probes 0",
			"ip addr replace fd00::2/64 dev fabric1",
		}},
		{"vm gets a namespace", func(_ *Fake, want *projections.Desired) {
			want.Fabrics[1].Namespace = "z2"
		}, []string{
			"ip link del fabric1",
			"ip link add link sdcvxl6 name fabric1 netns z2 address 02:00:00:00:00:02 mtu 1400 up type macvlan mode bridge",
			"ip -n z2 ntable change name arp_cache dev fabric1 app_probes 1 mcast_probes 0",
			"ip -n z2 ntable change name ndisc_cache dev fabric1 app_probes 1 mcast_probes 0",
			"ip -n z2 addr replace fd00::2/64 dev fabric1",
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f, want, numbers := made(t)
			test.change(f, &want)
			got := apply(t, f, want, numbers)
			for i := range test.steps {
				if test.steps[i] == "rm z1" {
					test.steps[i] = "remove resolv.conf of z1"
				}
			}
			if !slices.Equal(got, test.steps) {
				t.Errorf("steps: got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.steps, "\n"))
			}
		})
	}
}

func TestPlanWithoutPruneDeletesNothing(t *testing.T) {
	f, _, numbers := made(t)
	have, _ := f.Dump(context.Background(), []string{"z1"})
	if got := Plan(projections.Desired{}, have, numbers, false); len(got.Steps) != 0 {
		t.Errorf("steps: got %v, want none", got.Steps)
	}
	want := sample()
	want.VXLANs[0].Local = addr("10.99.0.9")
	want.VLANs, want.Fabrics = nil, nil
	got := Plan(want, have, numbers, false)
	if len(got.Steps) != 0 || len(got.Blocked) != 1 || !errors.Is(got.Blocked[0].Err, ErrIncomplete) {
		t.Errorf("rebuild below unknown links: got %v, %v, want only ErrIncomplete", got.Steps, got.Blocked)
	}
}

func TestPlanForeign(t *testing.T) {
	tests := []struct {
		name string
		link Link
	}{
		{"vxlan name, other kind", Link{Name: "sdcvxl5", Kind: "dummy", MTU: 1500}},
		{"vlan name on a foreign link", Link{Name: "vx5v7", Kind: kindVLAN, MTU: 1500, VLAN: 7}},
		{"fabric name in the vm, made by the vm", Link{Namespace: "z1", Name: "fabric0", Kind: kindMacvlan, MTU: 1500, MAC: mac(77)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := &Fake{}
			f.AddNamespace("z1")
			if err := f.AddLink(test.link); err != nil {
				t.Fatal(err)
			}
			before := *f.links[0]
			want := sample()
			numbers := numbersFor(want)
			for range 2 {
				have, _ := f.Dump(context.Background(), []string{"z1"})
				work := Plan(want, have, numbers, true)
				if !slices.ContainsFunc(work.Blocked, func(b Blocked) bool { return errors.Is(b.Err, ErrForeign) }) {
					t.Fatalf("blocked: got %v, want ErrForeign", work.Blocked)
				}
				if errs := f.Do(context.Background(), work.Steps); errs != nil {
					t.Fatal(errors.Join(errs...))
				}
				want = projections.Desired{VXLANs: want.VXLANs, VLANs: want.VLANs, Fabrics: want.Fabrics}
			}
			have, _ := f.Dump(context.Background(), []string{"z1"})
			f.Do(context.Background(), Plan(projections.Desired{}, have, numbers, true).Steps)
			if len(f.links) != 1 || !reflect.DeepEqual(*f.links[0], before) {
				t.Errorf("foreign link: got\n%swant\n%s", f, before.String())
			}
		})
	}
}

func TestPlanSparesWhatCarriesForeignLinks(t *testing.T) {
	f, _, numbers := made(t)
	if err := f.AddLink(Link{Name: "theirs", Kind: kindMacvlan, Parent: "sdcvxl6"}); err != nil {
		t.Fatal(err)
	}
	have, _ := f.Dump(context.Background(), []string{"z1"})
	work := Plan(projections.Desired{}, have, numbers, true)
	if len(work.Blocked) != 1 || !errors.Is(work.Blocked[0].Err, ErrForeign) {
		t.Errorf("blocked: got %v, want sdcvxl6", work.Blocked)
	}
	f.Do(context.Background(), work.Steps)
	if f.find(place{"", "theirs"}) == nil {
		t.Error("the foreign link is gone")
	}
}

// drawDesired draws a desired state from a small world, so that states overlap.
func drawDesired(t *rapid.T) projections.Desired {
	var want projections.Desired
	locals := []netip.Addr{addr("10.99.0.1"), addr("fd99::1")}
	for vnet := uint32(1); vnet <= 3; vnet++ {
		if !rapid.Bool().Draw(t, "vnet") {
			continue
		}
		mtu := rapid.SampledFrom([]uint32{1450, 1430}).Draw(t, "mtu")
		want.VXLANs = append(want.VXLANs, projections.VXLAN{VNet: vnet, Local: rapid.SampledFrom(locals).Draw(t, "local"), Port: 4789, MTU: mtu})
		vlan := uint16(0)
		if rapid.Bool().Draw(t, "tagged") {
			vlan, mtu = rapid.Uint16Range(1, 2).Draw(t, "vlan"), mtu-4
			want.VLANs = append(want.VLANs, projections.VLAN{VNet: vnet, ID: vlan, MTU: mtu})
		}
		for n := 1; n <= 3; n++ {
			if !rapid.Bool().Draw(t, "nic") {
				continue
			}
			drawNIC(t, &want, projections.Fabric{MAC: mac(n*10 + int(vnet)), VNet: vnet, VLAN: vlan, MTU: mtu})
		}
	}
	slices.SortFunc(want.Fabrics, func(a, b projections.Fabric) int { return compareMAC(a.MAC, b.MAC) })
	slices.SortFunc(want.Neighs, func(a, b projections.Neigh) int {
		if c := compareMAC(a.Link, b.Link); c != 0 {
			return c
		}
		return a.IP.Compare(b.IP)
	})
	return want
}

func drawNIC(t *rapid.T, want *projections.Desired, w projections.Fabric) {
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
			want.Neighs = append(want.Neighs, projections.Neigh{Link: w.MAC, IP: addr(fmt.Sprintf("10.0.%d.%d", w.VNet, 100+peer)), MAC: to})
		}
	}
	remote := projections.FDB{VNet: w.VNet, MAC: mac(1000), Dst: rapid.SampledFrom([]netip.Addr{addr("10.99.0.2"), addr("10.99.0.3")}).Draw(t, "dst")}
	if !slices.ContainsFunc(want.FDB, func(e projections.FDB) bool { return e.VNet == w.VNet }) {
		want.FDB = append(want.FDB, remote)
	}
}

// vandalise does what somebody with ip(8) would.
func vandalise(t *rapid.T, f *Fake) {
	if len(f.links) == 0 {
		return
	}
	l := rapid.SampledFrom(f.links).Draw(t, "victim")
	if kindOfName(l.Name) != l.Kind {
		return
	}
	switch rapid.IntRange(0, 5).Draw(t, "damage") {
	case 0:
		f.DeleteLink(l.Namespace, l.Name)
	case 1:
		l.Up, l.Neighs = false, nil
	case 2:
		l.FDB, l.Addresses = nil, nil
	case 3:
		f.lowerMTU(l, 1300)
	case 4:
		l.Proxy, l.Bridge = false, false
	case 5:
		if l.Kind == kindMacvlan {
			l.MAC = mac(666)
		}
	}
}

func TestPlanRandomWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &Fake{}
		f.AddNamespace("z1")
		f.AddNamespace("z2")
		foreign := Link{Name: "vx9v9", Kind: "dummy", MTU: 1500, MAC: mac(9)}
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
			if l := f.find(foreign.place()); l == nil || l.Kind != "dummy" || l.MTU != 1500 {
				t.Fatal("the foreign link was touched")
			}
			if got, expect := len(f.links), 1+len(want.VXLANs)+len(want.VLANs)+len(want.Fabrics); got != expect {
				t.Fatalf("links: got %d, want %d\n%s", got, expect, f)
			}
		}
	})
}
