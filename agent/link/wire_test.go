package link

import (
	"net/netip"
	"testing"

	"rutter/log"
)

// The decoders take whatever the kernel, or a fuzzer, gives them.

func FuzzParse(f *testing.F) {
	var e encoder
	e.vxlan(&Link{Name: "sdcvxl5", MTU: 1450, VNI: 5, Local: addr("10.99.0.1"), Port: 4789}, 7)
	f.Add(e.b)
	e.b = nil
	e.forward(Step{Op: OpSetFDB, MAC: mac(1), Addr: addr("fd99::1"), Port: 4790}, 7)
	f.Add(e.b)
	e.b = nil
	e.route(Step{Op: OpSetRoute, Link: "fabric3", Prefix: prefix("10.0.0.0/8"), Addr: addr("10.1.1.1")}, 7)
	f.Add(e.b)
	e.b = nil
	e.probes(Step{Addr: netip.IPv6Unspecified()}, 7)
	f.Add(e.b)
	f.Add([]byte{0, 0, 0, 0, 3, 0, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		parseLink(b)
		parseNeigh(b)
		parseRoute(b)
		parseProbes(b)
		if _, p, _, ok := parseAddress(b); ok && !p.IsValid() {
			t.Errorf("address: got invalid prefix %v as valid", p)
		}
	})
}

func TestEncodeAndParse(t *testing.T) {
	var e encoder
	spec := vxlanSpecOf(5, "fd99::1")
	e.vxlan(spec, 7)
	l, ok := parseLink(e.b)
	if !ok || l.Index != 7 || l.Name != spec.Name || l.Kind != kindVXLAN || l.MTU != spec.MTU || !sameBuild(spec, &l.Link) {
		t.Errorf("vxlan: got %v, want %v", l.Link.String(), spec)
	}
	e.b = nil
	e.macvlan(&Link{Name: "fabric1", MTU: 1400, MAC: mac(1)}, 8, 7, -1)
	if l, ok = parseLink(e.b); !ok || l.Kind != kindMacvlan || !l.Bridge || l.MAC != mac(1) || l.parent != 7 || !l.Up || l.parentNS != -1 {
		t.Errorf("macvlan: got %v", l)
	}
	e.b = nil
	e.vlan(&Link{Name: "vx5v7", MTU: 1400, VLAN: 7}, 9, 7)
	if l, ok = parseLink(e.b); !ok || l.Kind != kindVLAN || l.VLAN != 7 || l.parent != 7 {
		t.Errorf("vlan: got %v", l)
	}
	e.b = nil
	e.forward(Step{Op: OpSetFDB, MAC: mac(3), Addr: addr("10.99.0.2"), Port: 4790}, 7)
	if n, ok := parseNeigh(e.b); !ok || n.mac != mac(3) || n.dst != addr("10.99.0.2") || n.port != 4790 || n.index != 7 {
		t.Errorf("forwarding entry: got %v", n)
	}
	e.b = nil
	e.address(Step{Prefix: prefix("10.0.0.1/24")}, 7)
	if index, p, _, ok := parseAddress(e.b); !ok || index != 7 || p != prefix("10.0.0.1/24") {
		t.Errorf("address: got %v on %d", p, index)
	}
	e.b = nil
	e.route(Step{Op: OpSetRoute, Link: "fabric3", Prefix: prefix("::/0"), Addr: addr("fd00::1")}, 7)
	if r, ok := parseRoute(e.b); !ok || r.index != 7 || r.Dst != prefix("::/0") || r.Gateway != addr("fd00::1") {
		t.Errorf("route: got %v", r)
	}
	e.b = nil
	e.probes(Step{Addr: netip.IPv4Unspecified()}, 7)
	if index, _, p, ok := parseProbes(e.b); !ok || index != 7 || p != wantProbes {
		t.Errorf("probes: got %v on %d", p, index)
	}
	if (log.MAC{}) != asMAC([]byte{1, 2}) {
		t.Error("a MAC of two bytes was taken")
	}
}

func vxlanSpecOf(vnet uint32, local string) *Link {
	return &Link{
		Name: VXLANName(vnet), Kind: kindVXLAN, MTU: 1450, Up: true, VNI: vnet, Local: addr(local), Port: 4789,
		Proxy: true, L2Miss: true, L3Miss: true, QuietIPv6: true,
	}
}
