package filter

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"rutter/cmd/rutter/netlab"
)

// VXLAN packets are taken by the interfaces of the underlay and from the peers of their vnet,
// also where they come in fragments; other packets are not concerned.
func TestUnderlay(t *testing.T) {
	n := newNode(t)
	n.bridge("br0")
	v := n.vm("peer", "br0", macA)
	here, peer, other := netip.MustParseAddr("10.0.0.11"), netip.MustParseAddr("10.0.0.10"), netip.MustParseAddr("10.0.0.99")
	here6, peer6, other6 := netip.MustParseAddr("fd00::b"), netip.MustParseAddr("fd00::a"), netip.MustParseAddr("fd00::99")
	n.do(func() error {
		return errors.Join(netlab.SetMAC("br0", macB), netlab.AddAddress("br0", netip.PrefixFrom(here, 24)))
	})
	sent := func(protocol int, packet []byte) func() {
		return func() { v.send(ether(macB, macA, protocol, packet)) }
	}
	vxlan := func(port int, vni byte) []byte { return udpTo(9, port, 8, 0, 0, 0, 0, 0, vni, 0, 1, 2, 3, 4) }
	over4 := func(from netip.Addr, port int, vni byte) func() {
		return sent(0x800, ipv4(from, 17, 0, nil, vxlan(port, vni)))
	}
	over6 := func(from netip.Addr, vni byte) func() { return sent(0x86dd, ipv6(from, here6, 17, vxlan(4789, vni))) }
	drops := func(r Reason) uint64 { return n.counters().Underlay[r].Packets }
	apply := func(interfaces ...string) {
		n.apply(Change{SetUnderlay: &Underlay{Ports: []uint16{4789}, Interfaces: interfaces}},
			Change{AddPeer: &Peer{peer, 7}}, Change{AddPeer: &Peer{peer6, 8}})
	}
	dropped := func(name string, r Reason, send func()) {
		t.Helper()
		before := drops(r)
		send()
		eventually(t, name, func() bool { return drops(r) > before })
	}
	apply("else") // until the link carries packets
	eventually(t, "the link carries packets", func() bool { over4(peer, 4789, 7)(); return drops(ReasonInterface) > 0 })
	apply("br0")
	dropped("sender is no peer", ReasonPeer, over4(other, 4789, 7))
	dropped("sender is a peer of another vnet", ReasonPeer, over4(peer, 4789, 8))
	first := vxlan(4789, 7)
	dropped("in fragments", ReasonPeer, func() {
		sent(0x800, ipv4(other, 17, 0x2000, nil, first[:8]))()
		sent(0x800, ipv4(other, 17, 1, nil, first[8:]))()
	})
	passes := func(name string, sends ...func()) {
		t.Helper()
		before := n.counters().Underlay
		for _, send := range sends {
			send()
		}
		// A packet that is counted shows that those before it were looked at.
		dropped(name, ReasonPeer, over4(other, 4789, 7))
		if after := n.counters().Underlay; after[ReasonPeer].Packets != before[ReasonPeer].Packets+1 {
			t.Errorf("%s: drops were %v, now %v", name, before, after)
		}
	}
	passes("a peer, and other ports", over4(peer, 4789, 7), over4(other, 4790, 1), over4(peer, 53, 1))
	apply("else", "eth0")
	dropped("another interface", ReasonInterface, over4(peer, 4789, 7))
	apply("br0")
	passes("the interface is back", over4(peer, 4789, 7))
	n.apply(Change{DelPeer: &Peer{peer, 7}})
	dropped("no peer any more", ReasonPeer, over4(peer, 4789, 7))
	n.apply(Change{SetUnderlay: &Underlay{}})
	before := n.counters().Underlay
	over4(other, 4789, 7)()
	apply("br0")
	dropped("filtered again", ReasonPeer, over4(other, 4789, 7))
	if after := n.counters().Underlay; after[ReasonPeer].Packets != before[ReasonPeer].Packets+1 {
		t.Errorf("the zero Underlay dropped a packet: %v, then %v", before, after)
	}

	n.do(func() error {
		return errors.Join(writeSysctl("/proc/sys/net/ipv6/conf/br0/disable_ipv6", "0"), writeSysctl("/proc/sys/net/ipv6/conf/br0/accept_dad", "0"),
			netlab.AddAddress("br0", netip.PrefixFrom(here6, 64)))
	})
	apply("else")
	carried := drops(ReasonInterface)
	eventually(t, "the link carries IPv6", func() bool { over6(peer6, 8)(); return drops(ReasonInterface) > carried })
	apply("br0")
	dropped("IPv6: sender is no peer", ReasonPeer, over6(other6, 8))
	dropped("IPv6: another vnet", ReasonPeer, over6(peer6, 7))
	dropped("IPv6: first fragment without a VNI", ReasonPeer, sent(0x86dd, ipv6(peer6, here6, 44, fragmentHeader(17, 0, true, slices.Clone(first[:8])))))
	passes("IPv6: a peer", over6(peer6, 8))
}
