package plan

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"rutter/agent/link/internal/linktest"
	"rutter/projections/desired"
)

// groupText and markText are how steps print the mark of a node that follows no cluster.
const groupText = "group 1768495365"

func markText(object string) string {
	return `alias "rutter 00000000-0000-0000-0000-000000000000 ` + object + `" ` + groupText
}

func numbersFor(want desired.Links) Numbers {
	var numbers Numbers
	for _, f := range want.Fabrics {
		numbers.Assign(f.MAC, nil)
		numbers.Put(f.MAC, f.Namespace)
	}
	return numbers
}

func namespacesOf(want desired.Links) []string {
	var names []string
	for _, f := range want.Fabrics {
		names = append(names, f.Namespace)
	}
	return Searched(names, nil)
}

func commands(steps []Step) []string {
	var list []string
	for _, s := range steps {
		list = append(list, s.String())
	}
	return list
}

// apply plans and does once, and fails if the kernel is not as wanted then.
func apply(t *testing.T, f *Fake, want desired.Links, numbers Numbers) []string {
	t.Helper()
	have, _ := f.Dump(context.Background(), Searched(namespacesOf(want), numbers.Namespaces()))
	work := Plan(want, have, numbers, true)
	if errs := f.Do(context.Background(), work.Steps); errs != nil {
		t.Fatalf("do: %v", errors.Join(errs...))
	}
	have, _ = f.Dump(context.Background(), Searched(namespacesOf(want), numbers.Namespaces()))
	if again := Plan(want, have, numbers, true); len(again.Steps) != 0 {
		t.Fatalf("second plan: got %v, want nothing", again.Steps)
	}
	return commands(work.Steps)
}

func made(t *testing.T) (*Fake, desired.Links, Numbers) {
	t.Helper()
	f := &Fake{}
	f.AddNamespace("z1")
	f.AddNamespace("z2")
	want := linktest.Sample()
	numbers := numbersFor(want)
	apply(t, f, want, numbers)
	return f, want, numbers
}

func TestPlanFromNothing(t *testing.T) {
	f := &Fake{}
	f.AddNamespace("z1")
	want := linktest.Sample()
	got := apply(t, f, want, numbersFor(want))
	expect := []string{
		"ip link add sdcvxl5 mtu 1450 up " + markText("vxlan 5") + " type vxlan id 5 local 10.99.0.1 dstport 4789 nolearning proxy l2miss l3miss",
		"ip link add sdcvxl6 mtu 1450 up " + markText("vxlan 6") + " type vxlan id 6 local 10.99.0.1 dstport 4789 nolearning proxy l2miss l3miss",
		"ip link add link sdcvxl5 name vx5v7 mtu 1446 up " + markText("vlan 5 7") + " type vlan protocol 802.1Q id 7",
		"ip link add link vx5v7 name fabric0 netns z1 address 02:00:00:00:00:01 mtu 1446 up " + groupText + " type macvlan mode bridge",
		"ip link add link sdcvxl6 name fabric1 address 02:00:00:00:00:02 mtu 1400 up " + groupText + " type macvlan mode bridge",
		"ip -n z1 link set fabric0 " + markText("nic 02:00:00:00:00:01"),
		"ip -n z1 ntable change name arp_cache dev fabric0 app_probes 1 mcast_probes 0",
		"ip -n z1 ntable change name ndisc_cache dev fabric0 app_probes 1 mcast_probes 0",
		"ip -n z1 addr replace 10.0.0.1/24 dev fabric0",
		"ip link set fabric1 " + markText("nic 02:00:00:00:00:02"),
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
		change func(f *Fake, want *desired.Links)
		steps  []string
	}{
		{"nic moves between nodes", func(_ *Fake, want *desired.Links) {
			want.FDB[0].Dst = linktest.Addr("10.99.0.3")
		}, []string{"bridge fdb replace 02:00:00:00:00:03 dev sdcvxl5 dst 10.99.0.3 self permanent"}},
		{"gateway", func(_ *Fake, want *desired.Links) {
			want.Fabrics[0].Gateway = linktest.Addr("10.0.1.1")
		}, []string{"ip -n z1 route replace default via 10.0.1.1 dev fabric0 onlink proto 82"}},
		{"held vm", func(_ *Fake, want *desired.Links) {
			w := &want.Fabrics[0]
			w.Hold, w.Gateway, w.MTU, w.Routes, w.Resolvers = true, linktest.Addr("10.0.0.7"), 1300, nil, nil
		}, nil},
		{"neighbour and entry go", func(_ *Fake, want *desired.Links) {
			want.FDB, want.Neighs = nil, nil
		}, []string{"ip -n z1 neigh del 10.0.0.3 dev fabric0", "bridge fdb del 02:00:00:00:00:03 dev sdcvxl5 self"}},
		{"new address before the old goes", func(_ *Fake, want *desired.Links) {
			want.Fabrics[0].Addresses = []netip.Prefix{linktest.Prefix("10.0.0.2/24")}
		}, []string{"ip -n z1 addr replace 10.0.0.2/24 dev fabric0", "ip -n z1 addr del 10.0.0.1/24 dev fabric0"}},
		{"somebody changed mac, mtu and state", func(f *Fake, _ *desired.Links) {
			f.Edit("", "fabric1", func(l *Link) { l.MAC, l.MTU, l.Up = linktest.MAC(99), 1300, false })
		}, []string{"ip link set fabric1 address 02:00:00:00:00:02 mtu 1400 up"}},
		{"a vnet goes, from below", func(_ *Fake, want *desired.Links) {
			want.VXLANs, want.VLANs, want.Fabrics = want.VXLANs[1:], nil, want.Fabrics[1:]
			want.FDB, want.Neighs = nil, nil
		}, []string{"rm z1", "ip link del sdcvxl5"}},
		{"wrong underlay address rebuilds the stack", func(_ *Fake, want *desired.Links) {
			want.VXLANs[1].Local = linktest.Addr("10.99.0.9")
		}, []string{
			"ip link del sdcvxl6",
			"ip link add sdcvxl6 mtu 1450 up " + markText("vxlan 6") + " type vxlan id 6 local 10.99.0.9 dstport 4789 nolearning proxy l2miss l3miss",
			"ip link add link sdcvxl6 name fabric1 address 02:00:00:00:00:02 mtu 1400 up " + groupText + " type macvlan mode bridge",
			"ip link set fabric1 " + markText("nic 02:00:00:00:00:02"),
			"ip ntable change name arp_cache dev fabric1 app_probes 1 mcast_probes 0",
			"ip ntable change name ndisc_cache dev fabric1 app_probes 1 mcast_probes 0",
			"ip addr replace fd00::2/64 dev fabric1",
		}},
		{"vm gets a namespace", func(_ *Fake, want *desired.Links) {
			want.Fabrics[1].Namespace = "z2"
		}, []string{
			"ip link del fabric1",
			"ip link add link sdcvxl6 name fabric1 netns z2 address 02:00:00:00:00:02 mtu 1400 up " + groupText + " type macvlan mode bridge",
			"ip -n z2 link set fabric1 " + markText("nic 02:00:00:00:00:02"),
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
	if got := Plan(desired.Links{}, have, numbers, false); len(got.Steps) != 0 {
		t.Errorf("steps: got %v, want none", got.Steps)
	}
	want := linktest.Sample()
	want.VXLANs[0].Local = linktest.Addr("10.99.0.9")
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
		{"vlan name on a foreign link", Link{Name: "vx5v7", Kind: KindVLAN, MTU: 1500, VLAN: 7}},
		{"fabric name in the vm, made by the vm", Link{Namespace: "z1", Name: "fabric0", Kind: KindMacvlan, MTU: 1500, MAC: linktest.MAC(77)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := &Fake{}
			f.AddNamespace("z1")
			if err := f.AddLink(test.link); err != nil {
				t.Fatal(err)
			}
			before := *f.Links[0]
			want := linktest.Sample()
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
				want = desired.Links{VXLANs: want.VXLANs, VLANs: want.VLANs, Fabrics: want.Fabrics}
			}
			have, _ := f.Dump(context.Background(), []string{"z1"})
			f.Do(context.Background(), Plan(desired.Links{}, have, numbers, true).Steps)
			if len(f.Links) != 1 || !reflect.DeepEqual(*f.Links[0], before) {
				t.Errorf("foreign link: got\n%swant\n%s", f, before.String())
			}
		})
	}
}

func TestPlanSparesWhatCarriesForeignLinks(t *testing.T) {
	f, _, numbers := made(t)
	if err := f.AddLink(Link{Name: "theirs", Kind: KindMacvlan, Parent: "sdcvxl6"}); err != nil {
		t.Fatal(err)
	}
	have, _ := f.Dump(context.Background(), []string{"z1"})
	work := Plan(desired.Links{}, have, numbers, true)
	if len(work.Blocked) != 1 || !errors.Is(work.Blocked[0].Err, ErrForeign) {
		t.Errorf("blocked: got %v, want sdcvxl6", work.Blocked)
	}
	f.Do(context.Background(), work.Steps)
	if f.Find(LinkKey{"", "theirs"}) == nil {
		t.Error("the foreign link is gone")
	}
}
