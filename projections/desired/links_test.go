package desired_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/desired"
	"rutter/projections/internal/worldtest"
	"rutter/projections/rules"
)

// text prints what is desired, one line each.
// zoneNIC is a good NIC of VM #21# less what each case adds.
const zoneNIC = `"belongs_to_type": "zone", "belongs_to_uuid": "#21#", "owner_uuid": "#1#"`

func text(d desired.Links) string {
	var b strings.Builder
	for _, v := range d.VXLANs {
		fmt.Fprintf(&b, "vxlan %d local %s port %d mtu %d\n", v.VNet, v.Local, v.Port, v.MTU)
	}
	for _, v := range d.VLANs {
		fmt.Fprintf(&b, "vlan %d.%d mtu %d\n", v.VNet, v.ID, v.MTU)
	}
	for _, f := range d.Fabrics {
		fmt.Fprintf(&b, "fabric %s on %d.%d mtu %d vm %s in %q addr %v via %v routes %v resolvers %v hold %v\n",
			f.MAC, f.VNet, f.VLAN, f.MTU, f.VM, f.Namespace, f.Addresses, f.Gateway, f.Routes, f.Resolvers, f.Hold)
	}
	for _, n := range d.Neighs {
		fmt.Fprintf(&b, "neigh on %s: %s is %s\n", n.Link, n.IP, n.MAC)
	}
	for _, f := range d.FDB {
		fmt.Fprintf(&b, "fdb %d: %s at %s port %d\n", f.VNet, f.MAC, f.Dst, f.Port)
	}
	for _, p := range d.Problems {
		fmt.Fprintf(&b, "problem %s %s: %s\n", p.Kind, p.ID, p.Reason)
	}
	return b.String()
}

func wantLinks(t *testing.T, s *projections.State, cn log.UUID, want string) {
	t.Helper()
	want = strings.ReplaceAll(strings.TrimPrefix(changetest.Expand(want), "\n"), "\t", "")
	if got := text(desired.Of(s, cn)); got != want {
		t.Errorf("CN %s desires\n%swant\n%s", cn, got, want)
	}
}

func TestDesiredLinks(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	w.Must(`create network {"uuid": "#34#", "name": "six", "nic_tag": "overlay", "subnet": "fd00:1::/64", "gateway": "fd00:1::1",
		"resolvers": ["fd00:1::2"], "routes": {"fd00:9::/64": "linklocal", "fd00:8::/64": "fd00:1::5"}, "owner_uuids": ["#1#"], "fabric": true, "vnet_id": 10}`)
	w.Must(`create nic {"mac": "020000000009", `+zoneNIC+`, "network_uuid": "#34#"}`,
		`create nic {"mac": "020000000007", "belongs_to_type": "zone", "belongs_to_uuid": "#23#", "owner_uuid": "#1#", "cn_uuid": "#11#", "network_uuid": "#31#"}`,
		`create nic {"mac": "020000000008", "belongs_to_type": "zone", "belongs_to_uuid": "#24#", "owner_uuid": "#2#", "cn_uuid": "#12#", "network_uuid": "#32#"}`,
		`create vm {"uuid": "#23#", "owner_uuid": "#1#", "server_uuid": "#11#", "zonename": "web"}`)
	wantLinks(t, w.State, changetest.UUID(11), `
		vxlan 10 local 192.168.0.2 port 4789 mtu 1450
		vlan 10.2 mtu 1446
		fabric 00:00:00:00:02:00 on 10.2 mtu 1446 vm #21# in "#21#" addr [10.0.0.3/24] via 10.0.0.1 routes [{10.9.0.0/16 10.0.0.9}] resolvers [10.0.0.2 8.8.8.8 fd00:1::2] hold false
		fabric 02:00:00:00:00:07 on 10.2 mtu 1446 vm #23# in "web" addr [10.0.0.5/24] via 10.0.0.1 routes [{10.9.0.0/16 10.0.0.9}] resolvers [10.0.0.2 8.8.8.8] hold true
		fabric 02:00:00:00:00:09 on 10.0 mtu 1450 vm #21# in "#21#" addr [fd00:1::3/64] via fd00:1::1 routes [{fd00:8::/64 fd00:1::5}] resolvers [10.0.0.2 8.8.8.8 fd00:1::2] hold false
		neigh on 00:00:00:00:02:00: 10.0.0.4 is 00:00:00:00:02:01
		neigh on 00:00:00:00:02:00: 10.0.0.5 is 02:00:00:00:00:07
		neigh on 02:00:00:00:00:07: 10.0.0.3 is 00:00:00:00:02:00
		neigh on 02:00:00:00:00:07: 10.0.0.4 is 00:00:00:00:02:01
		fdb 10: 00:00:00:00:02:01 at 192.168.0.3 port 0
		problem network #31#: its MTU 8926 does not fit the underlay of this node, which carries 1446 (its underlay network has MTU 1500): its links here get that; lower the MTU of the network, or raise the underlay's (docs/deploy.md, MTU)
		problem network #34#: its MTU 8926 does not fit the underlay of this node, which carries 1450 (its underlay network has MTU 1500): its links here get that; lower the MTU of the network, or raise the underlay's (docs/deploy.md, MTU)
		problem network #34#: its route to fd00:9::/64 is by linklocal, which a fabric link has no way to do
	`)
	wantLinks(t, w.State, changetest.UUID(13), "")
}

func TestDesiredLinksOfRouters(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	// A VM with two fabrics has one default route: its primary NIC's.
	w.Must(`create network {"uuid": "#35#", "name": "more", "nic_tag": "overlay", "subnet": "10.5.0.0/24", "gateway": "10.5.0.1", "mtu": 1300, "owner_uuids": ["#1#"], "fabric": true, "vnet_id": 10}`,
		`create nic {"mac": "000000000001", `+zoneNIC+`, "network_uuid": "#35#"}`)
	for _, f := range desired.Of(w.State, changetest.UUID(11)).Fabrics {
		if f.Gateway.IsValid() != (f.MAC[4] == 2) {
			t.Errorf("fabric %s has the gateway %v", f.MAC, f.Gateway)
		}
		if f.MAC[4] == 0 && f.MTU != 1300 {
			t.Errorf("fabric %s has MTU %d, want its network's 1300", f.MAC, f.MTU)
		}
	}
	// A NIC that has the address of a gateway does not route to itself.
	w.Must(`update nic 00:00:00:00:02:00 {"ip": "10.0.0.1"}`, `update network #31# {"routes": {"10.9.0.0/16": "10.0.0.1"}}`)
	for _, f := range desired.Of(w.State, changetest.UUID(11)).Fabrics {
		if f.MAC[4] == 2 && (f.Gateway.IsValid() || f.Routes != nil) {
			t.Errorf("the router's own NIC has gateway %v and routes %v", f.Gateway, f.Routes)
		}
		if f.MAC[4] == 0 && !f.Gateway.IsValid() {
			t.Error("the router's other NIC lost its default route")
		}
	}
}

func TestDesiredLinksProblems(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	w.Must(`create network {"uuid": "#36#", "name": "under six", "nic_tag": "external", "subnet": "fd00:6::/64", "mtu": 1400}`)
	w.Must(`update nic 00:00:00:00:01:01 {"network_uuid": "#36#"}`)
	wantLinks(t, w.State, changetest.UUID(11), `
		vxlan 10 local 192.168.0.2 port 4789 mtu 1450
		vlan 10.2 mtu 1446
		fabric 00:00:00:00:02:00 on 10.2 mtu 1446 vm #21# in "#21#" addr [10.0.0.3/24] via 10.0.0.1 routes [{10.9.0.0/16 10.0.0.9}] resolvers [10.0.0.2 8.8.8.8] hold false
		problem network #31#: its MTU 8926 does not fit the underlay of this node, which carries 1446 (its underlay network has MTU 1500): its links here get that; lower the MTU of the network, or raise the underlay's (docs/deploy.md, MTU)
		problem server #12#: its underlay address fd00:6::1 is not of the family of 192.168.0.2, so its NICs cannot be reached
	`)
	six := desired.Of(w.State, changetest.UUID(12))
	if got := six.VXLANs[0]; got.Local != netip.MustParseAddr("fd00:6::1") || got.MTU != 1400-70 || six.Fabrics[0].MTU != 1400-74 {
		t.Errorf("over an IPv6 underlay of MTU 1400: %+v, fabric MTU %d", got, six.Fabrics[0].MTU)
	}
	w.Must(`delete nic 00:00:00:00:01:01`)
	wantLinks(t, w.State, changetest.UUID(12), `
		problem server #12#: it has no underlay NIC with an address, so none of its fabrics can be made
	`)
	if p := desired.Of(w.State, changetest.UUID(11)).Problems; len(p) != 2 || !strings.Contains(p[1].Reason, "has no underlay NIC") {
		t.Errorf("the other CN's problems are %v", p)
	}
	w.State.Drop(log.KindNetwork, changetest.UUID(31).String())
	if p := desired.Of(w.State, changetest.UUID(11)).Problems; len(p) != 1 || !strings.Contains(p[0].Reason, "is not known") {
		t.Errorf("without the network the problems are %v", p)
	}
}

// TestNICBeforeItsVM: a NIC that is moved before its VM is on its new node a link of the
// namespace that has the VM's UUID, and never one of the node's own namespace, in which the
// node itself would answer for the VM's address.
func TestNICBeforeItsVM(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	namespaces := func() (list []string) {
		for _, f := range desired.Of(w.State, changetest.UUID(12)).Fabrics {
			if f.VM == changetest.UUID(21) {
				list = append(list, fmt.Sprint(f.Namespace, " ", f.Idle))
			}
		}
		return list
	}
	w.Must(`update nic 00:00:00:00:02:00 {"cn_uuid": "#12#"}`)
	if got, want := fmt.Sprint(namespaces()), fmt.Sprintf("[%s true]", changetest.UUID(21)); got != want {
		t.Errorf("the NIC is moved: namespaces %s, want %s", got, want)
	}
	w.Must(`update vm #21# {"server_uuid": "#12#"}`)
	if got, want := fmt.Sprint(namespaces()), fmt.Sprintf("[%s false]", changetest.UUID(21)); got != want {
		t.Errorf("the VM follows: namespaces %s, want %s", got, want)
	}
}
