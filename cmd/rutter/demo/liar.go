package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"rutter/agent/filter"
	"rutter/cmd/rutter/netlab"
	"rutter/projections/desired"
)

// strangerHost is the address of a machine on the underlay that is no node.
const strangerHost = "192.168.99.66"

// lie is one frame of a VM that pretends to be another one.
type lie struct {
	what   string
	v6     bool
	frame  []byte
	reason filter.Reason // by which it must be counted
}

// lies are what one VM sends to a victim as another one.
func lies(liar, victim, as *vm) []lie {
	me, you, other := liar.mac(false), victim.mac(false), as.mac(false)
	me6, you6 := liar.mac(true), victim.mac(true)
	hello := func(from netip.Addr) []byte {
		return udp4(from, victim.address(false), portDiscard, portDiscard, "a lie")
	}
	target, zero := as.address(true), make([]byte, 4)
	return []lie{
		{"the MAC and address of " + as.alias, false, ether(you, other, etherIPv4, hello(as.address(false))), filter.ReasonMAC},
		{"the address of " + as.alias, false, ether(you, me, etherIPv4, hello(as.address(false))), filter.ReasonIP},
		{"ARP: the address of " + as.alias + " is at my MAC", false, ether(you, me, etherARP, arpReply(me, as.address(false), you, victim.address(false))), filter.ReasonARP},
		{"an answer of a DHCP server", false, ether(you, me, etherIPv4, udp4(liar.address(false), victim.address(false), dhcpServer, dhcpGuest, "an offer")), filter.ReasonDHCPServer},
		{"ND: the address of " + as.alias + " is at my MAC", true, ether(you6, me6, etherIPv6, icmp6(liar.address(true), victim.address(true), neighbourAdvertise, slices.Concat([]byte{0x60, 0, 0, 0}, target.AsSlice(), []byte{2, 1}, me6[:]))), filter.ReasonND},
		{"a router advertisement", true, ether(you6, me6, etherIPv6, icmp6(liar.address(true), victim.address(true), routerAdvertisement, slices.Concat(zero, zero, zero))), filter.ReasonRouter},
	}
}

// vmThatLies sends frames of one VM as another one, on its node and to the other node, and
// VXLAN packets from a machine that is no node.
func (s *stage) vmThatLies(ctx context.Context) error {
	s.say.begin("A VM that lies, and a stranger on the underlay")
	before, err := s.cns[0].status(ctx)
	if err != nil {
		return err
	}
	if before.Security.Mode.Mode != desired.SecurityEnforced {
		s.say.result("not shown, because this kernel cannot hold the rules (port security %s: %s)", before.Security.Mode.Mode, before.Security.Why)
		return nil
	}
	liar, as, told := s.vms["blue0"], s.vms["blue2"], 0
	for _, victim := range []string{"blue4", "blue1"} {
		n, err := s.lieTo(ctx, liar, s.vms[victim], as)
		if err != nil {
			return err
		}
		told += n
	}
	for _, l := range lies(liar, s.vms["blue1"], as) {
		s.say.detail("  dropped at its port, reason %-6s: %s", l.reason, l.what)
	}
	forged, err := s.stranger(ctx)
	if err != nil {
		return err
	}
	s.say.result("0 of %d lies and 0 of %d foreign VXLAN packets arrived; all are counted", told, forged)
	return nil
}

// dropped returns what the port of a VM's NIC dropped, by reason.
func (cn *computeNode) dropped(ctx context.Context, v *vm, v6 bool) (map[filter.Reason]uint64, error) {
	status, err := cn.status(ctx)
	if err != nil {
		return nil, err
	}
	counts := map[filter.Reason]uint64{}
	for _, p := range status.Security.Ports {
		if p.NIC == v.mac(v6) {
			for reason, c := range p.Drops {
				counts[reason] = c.Packets
			}
			return counts, nil
		}
	}
	return nil, fmt.Errorf("%s has no rules for %s", cn.name, v.mac(v6))
}

// lieTo tells a victim all lies. It returns how many were told, when each is counted, none
// arrived, and a true frame that was sent after them did.
func (s *stage) lieTo(ctx context.Context, liar, victim, as *vm) (told int, err error) {
	list := lies(liar, victim, as)
	for _, v6 := range []bool{false, true} {
		from, err := liar.openTap(v6)
		if err != nil {
			return 0, err
		}
		defer from.close()
		to, err := victim.openTap(v6)
		if err != nil {
			return 0, err
		}
		defer to.close()
		var frames [][]byte
		want, err := s.cns[0].dropped(ctx, liar, v6)
		if err != nil {
			return 0, err
		}
		for _, l := range list {
			if l.v6 != v6 {
				continue
			}
			if err := from.send(l.frame); err != nil {
				return 0, fmt.Errorf("%s: %w", l.what, err)
			}
			frames = append(frames, l.frame)
			want[l.reason]++
		}
		err = until(ctx, settleLimit, "the counters of "+liar.alias, func() error {
			got, err := s.cns[0].dropped(ctx, liar, v6)
			for reason, n := range want {
				if err == nil && got[reason] != n {
					err = fmt.Errorf("%d frames are counted for reason %s, want %d", got[reason], reason, n)
				}
			}
			return err
		})
		if err != nil {
			return 0, err
		}
		if _, err := liar.ns.Ping(victim.address(v6), 56, replyLimit); err != nil {
			return 0, fmt.Errorf("%s as itself: %w", liar.alias, err)
		}
		if n, err := to.count(frames); err != nil || n > 0 {
			return 0, errors.Join(fmt.Errorf("%d lies of %s reached %s", n, liar.alias, victim.alias), err)
		}
		told += len(frames)
	}
	s.say.detail("%s to %s on %s: %d lies, none arrived; as itself it gets a reply", liar.alias, victim.alias, s.nodeOf(victim), told)
	return told, nil
}

func (s *stage) nodeOf(v *vm) string {
	for _, cn := range s.cns {
		if cn.id == v.cn {
			return cn.name
		}
	}
	return ""
}

// stranger sends VXLAN packets of both vnets from a machine on the underlay that is no node.
// It returns how many, when all are counted, and none arrived. The same packet of a node
// does, which shows that it is the sender that counts.
func (s *stage) stranger(ctx context.Context) (int, error) {
	ns, err := s.addStranger(ctx)
	if err != nil {
		return 0, err
	}
	victim, as, node := s.vms["blue1"], s.vms["blue0"], s.cns[1]
	to, err := victim.openTap(false)
	if err != nil {
		return 0, err
	}
	defer to.close()
	frame := ether(victim.mac(false), as.mac(false), etherIPv4, udp4(as.address(false), victim.address(false), portDiscard, portDiscard, "from the underlay"))
	before, err := node.status(ctx)
	if err != nil {
		return 0, err
	}
	vnets := []uint32{vnetOf("blue"), vnetOf("green")}
	for _, vnet := range vnets {
		if err := sendVXLAN(ns, node.addr, vnet, s.tagged, frame); err != nil {
			return 0, err
		}
	}
	want := before.Security.Underlay[filter.ReasonPeer].Packets + uint64(len(vnets))
	err = until(ctx, settleLimit, "the counters of "+node.name, func() error {
		status, err := node.status(ctx)
		if got := status.Security.Underlay[filter.ReasonPeer].Packets; err == nil && got != want {
			err = fmt.Errorf("%d VXLAN packets of strangers are counted, want %d", got, want)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	if n, err := to.count([][]byte{frame}); err != nil || n > 0 {
		return 0, errors.Join(fmt.Errorf("%d packets of a stranger reached %s", n, victim.alias), err)
	}
	s.say.detail("%s, which is no node, sends VXLAN packets of both vnets to %s: dropped, reason %s", strangerHost, node.name, filter.ReasonPeer)
	if err := sendVXLAN(s.cns[0].ns, node.addr, vnets[0], s.tagged, frame); err != nil {
		return 0, err
	}
	err = until(ctx, settleLimit, "the packet of a node", func() error {
		n, err := to.count([][]byte{frame})
		if err == nil && n != 1 {
			err = fmt.Errorf("the packet of %s did not reach %s", s.cns[0].name, victim.alias)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	s.say.detail("the same packet from %s, a node of the vnet, arrives: the sender is what is checked", s.cns[0].addr)
	return len(vnets), nil
}

// addStranger makes a machine on the underlay, and waits until it reaches CN 2.
func (s *stage) addStranger(ctx context.Context) (ns netlab.Namespace, err error) {
	const port = "port-stranger"
	if ns, err = netlab.Create(s.namespaces, "stranger"); err != nil {
		return ns, err
	}
	err = errors.Join(
		netlab.AddVeth(port, "net0", ns, underlayMTU),
		netlab.SetMaster(port, "underlay"),
		netlab.SetUp(port, true),
		ns.Do(func() error {
			return errors.Join(netlab.SetUp("net0", true), netlab.AddAddress("net0", netip.PrefixFrom(netip.MustParseAddr(strangerHost), 24)))
		}),
	)
	if err != nil {
		return ns, err
	}
	return ns, until(ctx, settleLimit, "the stranger's way to "+s.cns[1].name, func() error {
		_, err := ns.Ping(s.cns[1].addr, 56, silence)
		return err
	})
}
