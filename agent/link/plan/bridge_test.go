package plan

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

	"rutter/agent/filter"
	"rutter/agent/link/internal/linktest"
	"rutter/log"
	"rutter/projections/desired"
)

var secured = Secure{On: true, Required: true}

// secureFake is a kernel with a filter and an underlay link.
func secureFake() (*Fake, *linktest.Table) {
	table := &linktest.Table{}
	f := &Fake{Filter: table, Interfaces: []Interface{
		{Name: "lo", Index: 1, Virtual: true, Addresses: []netip.Addr{linktest.Addr("127.0.0.1")}},
		{Name: "net0", Index: 2, Addresses: []netip.Addr{linktest.Addr("10.99.0.1")}},
		{Name: "net1", Index: 3, Addresses: []netip.Addr{linktest.Addr("10.98.0.1")}},
	}}
	f.AddNamespace("z1")
	f.AddNamespace("z2")
	return f, table
}

// applySecured is apply for a node with port security. It fails unless the next plan is empty.
func applySecured(t interface {
	Helper()
	Fatalf(string, ...any)
}, f *Fake, want desired.Links, numbers Numbers, secure Secure,
) []string {
	t.Helper()
	var list []string
	for round := 0; ; round++ {
		have, _ := f.Dump(context.Background(), Searched(namespacesOf(want), numbers.Namespaces()))
		work := PlanSecured(want, have, numbers, true, secure)
		if len(work.Steps) == 0 {
			if len(work.Blocked) > 0 {
				t.Fatalf("blocked: %v", work.Blocked)
			}
			return list
		}
		if round == 2 {
			t.Fatalf("after two rounds: %v\n%s", commands(work.Steps), f)
		}
		list = append(list, commands(work.Steps)...)
		if errs := f.Do(context.Background(), work.Steps); errs != nil {
			t.Fatalf("do: %v", errors.Join(errs...))
		}
	}
}

func TestPlanSecuredFromNothing(t *testing.T) {
	f, table := secureFake()
	want := linktest.Sample()
	want.Segments = []desired.Segment{{VNet: 5, VLAN: 7, MTU: 1446, Broadcast: true}}
	want.VXLANs[0].Flood = true
	got := applySecured(t, f, want, numbersFor(want), secured)
	expect := []string{
		"add peer 10.99.0.2 of sdcvxl5",
		"set rules of the underlay: UDP ports [4789], interfaces [net0]",
		"ip link add sdcvxl5 mtu 1450 up " + markText("vxlan 5") + " type vxlan id 5 local 10.99.0.1 dstport 4789 nolearning l2miss l3miss",
		"ip link add sdcvxl6 mtu 1450 up " + markText("vxlan 6") + " type vxlan id 6 local 10.99.0.1 dstport 4789 nolearning l2miss l3miss",
		"ip link add link sdcvxl5 name vx5v7 mtu 1446 up " + markText("vlan 5 7") + " type vlan protocol 802.1Q id 7",
		"ip link add br5v7 mtu 1446 " + markText("bridge 5 7") + " type bridge stp_state 0 mcast_snooping 0",
		"ip link set vx5v7 master br5v7 type bridge_slave learning off flood on mcast_flood on bcast_flood on",
		"ip link add br6v0 mtu 1450 " + markText("bridge 6 0") + " type bridge stp_state 0 mcast_snooping 0",
		"ip link set sdcvxl6 master br6v0 type bridge_slave learning off flood on mcast_flood off bcast_flood off",
		"ip link add port0 mtu 1446 " + markText("port 02:00:00:00:00:01") + " master br5v7 type veth peer name fabric0 netns z1 address 02:00:00:00:00:01 mtu 1446 " + groupText,
		"ip link add port1 mtu 1450 " + markText("port 02:00:00:00:00:02") + " master br6v0 type veth peer name fabric1 address 02:00:00:00:00:02 mtu 1400 " + groupText,
		"bridge fdb replace 02:00:00:00:00:01 dev port0 master static sticky",
		"ip -n z1 link set fabric0 up " + markText("nic 02:00:00:00:00:01"),
		"ip -n z1 ntable change name arp_cache dev fabric0 app_probes 1 mcast_probes 3",
		"ip -n z1 ntable change name ndisc_cache dev fabric0 app_probes 1 mcast_probes 3",
		"ip -n z1 addr replace 10.0.0.1/24 dev fabric0",
		"bridge fdb replace 02:00:00:00:00:02 dev port1 master static sticky",
		"ip link set fabric1 up " + markText("nic 02:00:00:00:00:02"),
		"ip ntable change name arp_cache dev fabric1 app_probes 1 mcast_probes 0",
		"ip ntable change name ndisc_cache dev fabric1 app_probes 1 mcast_probes 0",
		"ip addr replace fd00::2/64 dev fabric1",
		"set rules of br5v7",
		"set rules of br6v0",
		"set rules of port0: 02:00:00:00:00:01, [10.0.0.1]",
		"set rules of port1: 02:00:00:00:00:02, [fd00::2]",
		"ip link set br5v7 up",
		"ip link set br6v0 up",
		"ip link set port0 up",
		"ip link set port1 up",
		"bridge fdb append 00:00:00:00:00:00 dev sdcvxl5 dst 10.99.0.2 self permanent",
		"bridge fdb replace 02:00:00:00:00:03 dev sdcvxl5 dst 10.99.0.2 self permanent",
		"ip -n z1 neigh replace 10.0.0.3 lladdr 02:00:00:00:00:03 dev fabric0 nud permanent",
		"ip -n z1 route replace default via 10.0.0.254 dev fabric0 proto 82",
		"ip -n z1 route replace 10.5.0.0/16 via 10.0.0.9 dev fabric0 proto 82",
		`write resolv.conf of z1: "# written by rutter; changes are lost\nnameserver 8.8.8.8\n"`,
	}
	if !slices.Equal(got, expect) {
		t.Errorf("steps: got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(expect, "\n"))
	}
	if len(table.Held.Ports) != 2 || len(table.Held.Segments) != 2 || table.Held.Ports[0].Index == 0 {
		t.Errorf("rules: %+v", table.Held)
	}
	if got := applySecured(t, f, desired.Links{}, numbersFor(want), secured); len(f.Links) != 0 || !reflect.DeepEqual(table.Held, filter.State{Ports: []filter.Port{}, Segments: []filter.Segment{}, Peers: []filter.Peer{}}) {
		t.Errorf("after all is unwanted: %s, rules %+v, steps %v", f, table.Held, got)
	}
}

// TestPlanSecuredSettles: whatever was wanted, made or damaged before, with or without port
// security, two rounds make the kernel as wanted, and then there is nothing to do.
func TestPlanSecuredSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, table := secureFake()
		var numbers Numbers
		for range rapid.IntRange(1, 5).Draw(t, "changes") {
			want := drawLinks(t)
			for _, w := range want.Fabrics {
				numbers.Assign(w.MAC, nil)
				numbers.Put(w.MAC, w.Namespace)
			}
			secure := Secure{On: rapid.Bool().Draw(t, "on"), Required: rapid.Bool().Draw(t, "required")}
			drawAttach(t, &want, &numbers, secure.On)
			applySecured(t, f, want, numbers, secure)
			if n := len(table.Held.Ports); secure.On && n != len(want.Fabrics) || !secure.On && n != 0 {
				t.Fatalf("%d ports have rules, of %d: %+v", n, len(want.Fabrics), table.Held)
			}
			for _, l := range f.Links {
				if !l.Up {
					t.Fatalf("a link is down: %s", l)
				}
			}
			damage(t, f, table)
		}
	})
}

func drawLinks(t *rapid.T) desired.Links {
	want := desired.Links{}
	for _, vnet := range []uint32{5, 6} {
		if !rapid.Bool().Draw(t, "vnet") {
			continue
		}
		want.VXLANs = append(want.VXLANs, desired.VXLAN{VNet: vnet, Local: linktest.Addr("10.99.0.1"), Port: 4789, MTU: 1450, Flood: rapid.Bool().Draw(t, "flood")})
		if rapid.Bool().Draw(t, "tagged") {
			want.VLANs = append(want.VLANs, desired.VLAN{VNet: vnet, ID: 7, MTU: 1446})
		}
		for n := range rapid.IntRange(0, 3).Draw(t, "peers") {
			want.FDB = append(want.FDB, desired.FDB{VNet: vnet, MAC: linktest.MAC(100 + n), Dst: linktest.Addr("10.99.0.2").Next(), Port: 4789})
		}
	}
	for n := range 4 {
		if len(want.VXLANs) == 0 || !rapid.Bool().Draw(t, "nic") {
			continue
		}
		f := desired.Fabric{MAC: linktest.MAC(n + 1), VNet: rapid.SampledFrom(want.VXLANs).Draw(t, "on").VNet, MTU: 1400, Namespace: rapid.SampledFrom([]string{"", "z1", "z2"}).Draw(t, "in")}
		f.Addresses = []netip.Prefix{linktest.Prefix("10.0.0.1/24"), linktest.Prefix("fd00::1/64")}[:rapid.IntRange(0, 2).Draw(t, "addresses")]
		f.Security = desired.Security{AnyMAC: rapid.Bool().Draw(t, "any MAC"), Promiscuous: rapid.Bool().Draw(t, "promiscuous")}
		if slices.ContainsFunc(want.VLANs, func(v desired.VLAN) bool { return v.VNet == f.VNet }) && rapid.Bool().Draw(t, "in the VLAN") {
			f.VLAN = 7
		}
		want.Fabrics = append(want.Fabrics, f)
		if rapid.Bool().Draw(t, "broadcast") {
			want.Segments = append(want.Segments, desired.Segment{VNet: f.VNet, VLAN: f.VLAN, Broadcast: true})
		}
	}
	slices.SortStableFunc(want.Segments, desired.CompareSegment)
	want.Segments = slices.CompactFunc(want.Segments, func(a, b desired.Segment) bool { return desired.CompareSegment(a, b) == 0 })
	return want
}

// drawAttach draws where the links of NICs end: each in one of its ways, or another one than
// before. Names are not those of other NICs.
func drawAttach(t *rapid.T, want *desired.Links, numbers *Numbers, taps bool) {
	told := map[log.MAC]desired.Attach{}
	for i := range want.Fabrics {
		mac := want.Fabrics[i].MAC
		n := rapid.IntRange(0, 5).Draw(t, "attach")
		switch {
		case n < 2:
			told[mac] = desired.Attach{Name: fmt.Sprintf("eth%d%d", n, mac[5])}
		case n < 4 && taps:
			told[mac] = desired.Attach{Tap: true, Name: fmt.Sprintf("tap%d%d", n, mac[5]), User: uint32(n)}
		}
		numbers.Tell(mac, told[mac])
	}
	want.Attach(func(mac log.MAC) desired.Attach { return told[mac] })
}

// damage changes something of the kernel, as another program or a guest would.
func damage(t *rapid.T, f *Fake, table *linktest.Table) {
	if len(f.Links) == 0 {
		return
	}
	l := rapid.SampledFrom(f.Links).Draw(t, "link")
	switch rapid.IntRange(0, 7).Draw(t, "damage") {
	case 0:
		f.DeleteLink(l.Namespace, l.Name)
	case 1:
		l.Up = false
	case 2:
		f.Leave(l.Name)
	case 3:
		l.Flags.Learning, l.MTU = true, l.MTU-10
	case 4:
		l.Static = nil
	case 5:
		table.Held = filter.State{}
	case 6:
		table.Held.Ports = append(table.Held.Ports, filter.Port{Index: 77, Name: "gone"})
	}
}

// TestAllowedAddressesAreInTheRules: a NIC's allowed_ips may be sources of its port, and are
// not once the log takes them back. Whether they are addresses of its link is the VM's matter.
func TestAllowedAddressesAreInTheRules(t *testing.T) {
	f, _ := secureFake()
	want := linktest.Sample()
	numbers := numbersFor(want)
	applySecured(t, f, want, numbers, secured)
	want.Fabrics[0].Allowed = []netip.Addr{linktest.Addr("10.0.0.99")}
	if got := applySecured(t, f, want, numbers, secured); !slices.Equal(got, []string{"set rules of port0: 02:00:00:00:00:01, [10.0.0.1 10.0.0.99]"}) {
		t.Errorf("allowed: %q", got)
	}
	// The VM adds it to its link: it is the VM's, until the log takes it back.
	at := slices.IndexFunc(f.Links, func(l *Link) bool { return slices.Contains(l.Addresses, want.Fabrics[0].Addresses[0]) })
	f.Links[at].Addresses = append(f.Links[at].Addresses, linktest.Prefix("10.0.0.99/32"))
	if got := applySecured(t, f, want, numbers, secured); len(got) > 0 {
		t.Errorf("added by the VM: %q", got)
	}
	want.Fabrics[0].Allowed = nil
	if got := applySecured(t, f, want, numbers, secured); !slices.Equal(got, []string{"set rules of port0: 02:00:00:00:00:01, [10.0.0.1]", "ip -n z1 addr del 10.0.0.99/32 dev fabric0"}) {
		t.Errorf("taken back: %q", got)
	}
}
