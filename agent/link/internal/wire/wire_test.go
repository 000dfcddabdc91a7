package wire

import (
	"net/netip"
	"testing"

	"rutter/agent/link/internal/linktest"
	"rutter/agent/link/plan"
	"rutter/log"
)

// The decoders take whatever the kernel, or a fuzzer, gives them.

func FuzzParse(f *testing.F) {
	var e Encoder
	e.VXLAN(&plan.Link{Name: "sdcvxl5", MTU: 1450, VNI: 5, Local: linktest.Addr("10.99.0.1"), Port: 4789}, 7)
	f.Add(e.B)
	e.B = nil
	e.Forward(plan.Step{Op: plan.OpSetFDB, MAC: linktest.MAC(1), Addr: linktest.Addr("fd99::1"), Port: 4790}, 7)
	f.Add(e.B)
	e.B = nil
	e.Route(plan.Step{Op: plan.OpSetRoute, Link: "fabric3", Prefix: linktest.Prefix("10.0.0.0/8"), Addr: linktest.Addr("10.1.1.1")}, 7)
	f.Add(e.B)
	e.B = nil
	e.Probes(plan.Step{Addr: netip.IPv6Unspecified()}, 7)
	f.Add(e.B)
	f.Add([]byte{0, 0, 0, 0, 3, 0, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		ParseLink(b)
		ParseNeigh(b)
		ParseRoute(b)
		ParseProbes(b)
		if _, p, _, ok := ParseAddress(b); ok && !p.IsValid() {
			t.Errorf("address: got invalid prefix %v as valid", p)
		}
	})
}

func TestEncodeAndParse(t *testing.T) {
	var e Encoder
	spec := vxlanSpecOf(5, "fd99::1")
	e.VXLAN(spec, 7)
	l, ok := ParseLink(e.B)
	if !ok || l.Index != 7 || l.Name != spec.Name || l.Kind != plan.KindVXLAN || l.MTU != spec.MTU || !plan.SameBuild(spec, &l.Link) {
		t.Errorf("vxlan: got %v, want %v", l.Link.String(), spec)
	}
	e.B = nil
	e.Macvlan(&plan.Link{Name: "fabric1", MTU: 1400, MAC: linktest.MAC(1)}, 8, 7, -1)
	if l, ok = ParseLink(e.B); !ok || l.Kind != plan.KindMacvlan || !l.Bridge || l.MAC != linktest.MAC(1) || l.ParentIndex != 7 || !l.Up || l.ParentNS != -1 {
		t.Errorf("macvlan: got %v", l)
	}
	e.B = nil
	e.VLAN(&plan.Link{Name: "vx5v7", MTU: 1400, VLAN: 7}, 9, 7)
	if l, ok = ParseLink(e.B); !ok || l.Kind != plan.KindVLAN || l.VLAN != 7 || l.ParentIndex != 7 {
		t.Errorf("vlan: got %v", l)
	}
	e.B = nil
	e.Forward(plan.Step{Op: plan.OpSetFDB, MAC: linktest.MAC(3), Addr: linktest.Addr("10.99.0.2"), Port: 4790}, 7)
	if n, ok := ParseNeigh(e.B); !ok || n.MAC != linktest.MAC(3) || n.Dst != linktest.Addr("10.99.0.2") || n.Port != 4790 || n.Index != 7 {
		t.Errorf("forwarding entry: got %v", n)
	}
	e.B = nil
	e.Address(plan.Step{Prefix: linktest.Prefix("10.0.0.1/24")}, 7)
	if index, p, _, ok := ParseAddress(e.B); !ok || index != 7 || p != linktest.Prefix("10.0.0.1/24") {
		t.Errorf("address: got %v on %d", p, index)
	}
	e.B = nil
	e.Route(plan.Step{Op: plan.OpSetRoute, Link: "fabric3", Prefix: linktest.Prefix("::/0"), Addr: linktest.Addr("fd00::1")}, 7)
	if r, ok := ParseRoute(e.B); !ok || r.Index != 7 || r.Dst != linktest.Prefix("::/0") || r.Gateway != linktest.Addr("fd00::1") {
		t.Errorf("route: got %v", r)
	}
	e.B = nil
	e.Probes(plan.Step{Addr: netip.IPv4Unspecified()}, 7)
	if index, _, p, ok := ParseProbes(e.B); !ok || index != 7 || p != plan.WantedProbes {
		t.Errorf("probes: got %v on %d", p, index)
	}
	if (log.MAC{}) != asMAC([]byte{1, 2}) {
		t.Error("a MAC of two bytes was taken")
	}
}

func vxlanSpecOf(vnet uint32, local string) *plan.Link {
	return &plan.Link{
		Name: plan.VXLANName(vnet), Kind: plan.KindVXLAN, MTU: 1450, Up: true, VNI: vnet, Local: linktest.Addr(local), Port: 4789,
		Proxy: true, L2Miss: true, L3Miss: true, QuietIPv6: true,
	}
}
