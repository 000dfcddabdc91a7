package filter

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"rutter/log"
)

var broadcast = log.MAC{255, 255, 255, 255, 255, 255}

func be16(n int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(n)) }

func ether(to, from log.MAC, protocol int, payload []byte) []byte {
	return slices.Concat(to[:], from[:], be16(protocol), payload)
}

// tagged puts 802.1Q or 802.1ad tags into a frame, the outermost first.
func tagged(frame []byte, protocols ...int) []byte {
	var tags []byte
	for i, p := range protocols {
		tags = slices.Concat(tags, be16(p), be16(i+5))
	}
	return slices.Concat(frame[:12], tags, frame[12:])
}

// ipv4 has options if they are given (a multiple of 4 bytes), and is a fragment if fragment is
// not 0 (flags and offset as in the header).
func ipv4(from netip.Addr, protocol byte, fragment int, options, payload []byte) []byte {
	h := slices.Concat([]byte{0x45 + byte(len(options)/4), 0}, be16(20+len(options)+len(payload)), be16(77), be16(fragment),
		[]byte{64, protocol, 0, 0}, from.AsSlice(), ip4B.AsSlice(), options)
	var sum uint32
	for i := 0; i < len(h); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(h[10:], ^uint16(sum))
	return append(h, payload...)
}

func udpTo(from, to int, payload ...byte) []byte {
	return slices.Concat(be16(from), be16(to), be16(8+len(payload)), be16(0), payload)
}

func ipv6(from, to netip.Addr, next byte, payload []byte) []byte {
	return slices.Concat([]byte{0x60, 0, 0, 0}, be16(len(payload)), []byte{next, 255}, from.AsSlice(), to.AsSlice(), payload)
}

// Extension headers, each with what comes next.
func hopByHop(next byte, payload []byte) []byte {
	return slices.Concat([]byte{next, 0, 1, 4, 0, 0, 0, 0}, payload)
}

// fragmentHeader has an offset in units of 8 bytes.
func fragmentHeader(next byte, offset int, more bool, payload []byte) []byte {
	n := offset << 3
	if more {
		n |= 1
	}
	return slices.Concat([]byte{next, 0}, be16(n), []byte{0, 0, 0, 9}, payload)
}

func arpBody(operation int, senderMAC log.MAC, sender, target netip.Addr) []byte {
	return slices.Concat(be16(1), be16(0x800), []byte{6, 4}, be16(operation), senderMAC[:], sender.AsSlice(), make([]byte, 6), target.AsSlice())
}

func macOption(typ byte, mac log.MAC) []byte { return append([]byte{typ, 1}, mac[:]...) }

var nonceOption = []byte{14, 1, 1, 2, 3, 4, 5, 6}

func icmpv6(typ byte, body ...byte) []byte { return append([]byte{typ, 0, 0, 0}, body...) }

// nd is a neighbour solicitation or advertisement.
func nd(typ byte, target netip.Addr, options ...byte) []byte {
	return icmpv6(typ, slices.Concat(make([]byte, 4), target.AsSlice(), options)...)
}

var (
	none4      = netip.IPv4Unspecified()
	none6      = netip.IPv6Unspecified()
	linkA      = LinkLocal(macA)
	linkB      = LinkLocal(macB)
	linkOther  = netip.MustParseAddr("fe80::1234:5678:9abc:def0") // as RFC 7217 makes them
	allNodes   = netip.MustParseAddr("ff02::1")
	allRouters = netip.MustParseAddr("ff02::2")
	allDHCP    = netip.MustParseAddr("ff02::1:2")
	allMLD     = netip.MustParseAddr("ff02::16")
)

const (
	plain   = iota // no flag
	anyMAC  = 1 << iota
	anyIP   = 1 << iota
	dhcp    = 1 << iota
	traffic = 1 << iota
	never   = 0
	always  = 1 << iota
)

// frameCase is a frame that port A sends.
type frameCase struct {
	name   string
	frame  []byte
	passes int    // with any of these flags; always: without one too
	reason Reason // why it is dropped without them
	// behind is the reason with allow_restricted_traffic, if that is another one.
	behind Reason
}

func frameCases() []frameCase {
	var out []frameCase
	add := func(name string, frame []byte, passes int, reason Reason) {
		out = append(out, frameCase{name: name, frame: frame, passes: passes, reason: reason})
	}
	eth := func(protocol int, payload []byte) []byte { return ether(broadcast, macA, protocol, payload) }
	v4 := func(from netip.Addr, protocol byte, payload []byte) []byte {
		return eth(unix.ETH_P_IP, ipv4(from, protocol, 0, nil, payload))
	}
	v6 := func(from, to netip.Addr, next byte, payload []byte) []byte {
		return eth(unix.ETH_P_IPV6, ipv6(from, to, next, payload))
	}
	add("frame/own", v4(ip4A, 17, udpTo(1, 2)), always, "")
	add("frame/MAC of another", ether(macB, log.MAC{2, 0, 0, 0, 0, 9}, unix.ETH_P_IP, ipv4(ip4A, 17, 0, nil, udpTo(1, 2))), anyMAC, ReasonMAC)
	add("frame/MAC of a neighbour", ether(broadcast, macB, unix.ETH_P_IP, ipv4(ip4A, 17, 0, nil, udpTo(1, 2))), anyMAC, ReasonMAC)
	add("frame/MAC comes before the address", ether(broadcast, macB, unix.ETH_P_IP, ipv4(ip4B, 17, 0, nil, udpTo(1, 2))), never, ReasonMAC)
	for _, last := range []byte{0, 2, 3, 0xe, 0xf} /* the kernel drops 1, pause frames */ {
		add("frame/reserved MAC "+string('a'+rune(last)), ether(log.MAC{1, 0x80, 0xc2, 0, 0, last}, macA, unix.ETH_P_IP, ipv4(ip4A, 17, 0, nil, udpTo(1, 2))), never, ReasonProtocol)
	}

	add("ipv4/second address", v4(ip4A2, 6, make([]byte, 20)), always, "")
	add("ipv4/address of a neighbour", v4(ip4B, 17, udpTo(1, 2)), anyIP, ReasonIP)
	add("ipv4/no address", v4(none4, 17, udpTo(1, 2)), anyIP, ReasonIP)
	add("ipv4/no address, DHCP request", ether(broadcast, macA, unix.ETH_P_IP, ipv4(none4, 17, 0, nil, udpTo(68, 67))), always, "")
	add("ipv4/DHCP request of an own address", v4(ip4A, 17, udpTo(68, 67)), always, "")
	add("ipv4/DHCP request of another's address", v4(ip4B, 17, udpTo(68, 67)), anyIP, ReasonIP)
	add("ipv4/DHCP answer", v4(ip4A, 17, udpTo(67, 68)), dhcp, ReasonDHCPServer)
	add("ipv4/DHCP answer from another port", v4(ip4A, 17, udpTo(1067, 68)), dhcp, ReasonDHCPServer)
	add("ipv4/DHCP answer behind options", eth(unix.ETH_P_IP, ipv4(ip4A, 17, 0, []byte{1, 1, 1, 1, 1, 1, 1, 0}, udpTo(67, 68))), dhcp, ReasonDHCPServer)
	add("ipv4/DHCP answer in fragments", eth(unix.ETH_P_IP, ipv4(ip4A, 17, 0x2000, nil, udpTo(67, 68))), dhcp, ReasonDHCPServer)
	add("ipv4/first fragment", eth(unix.ETH_P_IP, ipv4(ip4A, 17, 0x2000, nil, udpTo(1, 2))), always, "")
	add("ipv4/later fragment", eth(unix.ETH_P_IP, ipv4(ip4A, 17, 3, nil, make([]byte, 16))), always, "")
	add("ipv4/later fragment of another", eth(unix.ETH_P_IP, ipv4(ip4B, 17, 3, nil, make([]byte, 16))), anyIP, ReasonIP)
	add("ipv4/options, of another", eth(unix.ETH_P_IP, ipv4(ip4B, 17, 0, []byte{1, 1, 1, 0}, udpTo(1, 2))), anyIP, ReasonIP)
	wrong := v4(ip4A, 17, udpTo(67, 68))
	wrong[14] = 0x55
	add("ipv4/version 5", wrong, never, ReasonIP)
	short := v4(ip4A, 17, udpTo(67, 68))
	short[14] = 0x44
	add("ipv4/header length 16", short, never, ReasonIP)
	long := v4(ip4A, 17, udpTo(67, 68))
	long[16] = 9
	add("ipv4/longer than the frame", long, never, ReasonIP)
	add("ipv4/too short", eth(unix.ETH_P_IP, ipv4(ip4A, 17, 0, nil, nil)[:15]), never, ReasonIP)

	// The same with TCP, which the fast rules take first.
	for name, at := range map[string][2]int{"version 5": {14, 0x55}, "header length 16": {14, 0x44}, "longer than the frame": {16, 9}} {
		odd := v4(ip4A, 6, make([]byte, 20))
		odd[at[0]] = byte(at[1])
		add("ipv4/TCP, "+name, odd, never, ReasonIP)
	}
	elsewhere := log.MAC{2, 0, 0, 0, 0, 0x77} // which the bridge has not learnt
	to := func(mac log.MAC, packet []byte) []byte { return ether(mac, macA, unix.ETH_P_IP, packet) }
	add("ipv4/to one", to(elsewhere, ipv4(ip4A, 6, 0, nil, make([]byte, 20))), always, "")
	add("ipv4/to one, of a neighbour", to(elsewhere, ipv4(ip4B, 6, 0, nil, make([]byte, 20))), anyIP, ReasonIP)
	add("ipv4/to one, DHCP answer", to(elsewhere, ipv4(ip4A, 17, 0, nil, udpTo(67, 68))), dhcp, ReasonDHCPServer)
	add("ipv4/to one, DHCP answer in fragments", to(elsewhere, ipv4(ip4A, 17, 0x2000, nil, udpTo(67, 68))), dhcp, ReasonDHCPServer)
	add("ipv4/to one, UDP without ports", to(elsewhere, ipv4(ip4A, 17, 0, nil, []byte{0, 67})), never, ReasonIP)
	add("ipv4/to one, first fragment without ports", to(elsewhere, ipv4(ip4A, 17, 0x2000, nil, nil)), never, ReasonIP)
	add("ipv4/next to DHCP, below", to(elsewhere, ipv4(ip4A, 17, 0, nil, udpTo(68, 66))), always, "")
	add("ipv4/next to DHCP, above", to(elsewhere, ipv4(ip4A, 17, 0, nil, udpTo(67, 69))), always, "")
	add("ipv4/DHCP relay", to(elsewhere, ipv4(ip4A, 17, 0, nil, udpTo(67, 67))), always, "")
	add("ipv4/fragment of TCP", to(elsewhere, ipv4(ip4A, 6, 0x2000, nil, make([]byte, 8))), always, "")
	add("ipv4/later fragment of TCP of a neighbour", to(elsewhere, ipv4(ip4B, 6, 3, nil, make([]byte, 16))), anyIP, ReasonIP)
	group := log.MAC{1, 0, 0x5e, 0, 0, 0x12}
	add("ipv4/VRRP", to(group, ipv4(ip4A, 112, 0, nil, make([]byte, 20))), always, "")
	add("ipv4/VRRP of a neighbour", to(group, ipv4(ip4B, 112, 0, nil, make([]byte, 20))), anyIP, ReasonIP)
	add("ipv4/DHCP answer to a group", to(group, ipv4(ip4A, 17, 0, nil, udpTo(67, 68))), dhcp, ReasonDHCPServer)
	add("ipv4/router alert", to(group, ipv4(ip4A, 46, 0, []byte{0x94, 4, 0, 0}, make([]byte, 16))), always, "")
	add("ipv4/ICMP too big", to(elsewhere, ipv4(ip4A, 1, 0, nil, append([]byte{3, 4, 0, 0, 0, 0, 5, 0xdc}, make([]byte, 28)...))), always, "")
	for name, protocol := range map[string]byte{"GRE": 47, "ESP": 50, "AH": 51, "6in4": 41, "SCTP": 132} {
		add("ipv4/"+name, to(elsewhere, ipv4(ip4A, protocol, 0, nil, make([]byte, 24))), always, "")
	}

	add("arp/request", ether(broadcast, macA, unix.ETH_P_ARP, arpBody(1, macA, ip4A, ip4B)), always, "")
	add("arp/reply", eth(unix.ETH_P_ARP, arpBody(2, macA, ip4A2, ip4B)), always, "")
	add("arp/announcement", ether(broadcast, macA, unix.ETH_P_ARP, arpBody(1, macA, ip4A, ip4A)), always, "")
	add("arp/probe", ether(broadcast, macA, unix.ETH_P_ARP, arpBody(1, macA, none4, ip4A)), always, "")
	add("arp/probe for another's address", ether(broadcast, macA, unix.ETH_P_ARP, arpBody(1, macA, none4, ip4B)), anyIP, ReasonARP)
	add("arp/request as another", ether(broadcast, macA, unix.ETH_P_ARP, arpBody(1, macA, ip4B, ip4A)), anyIP, ReasonARP)
	add("arp/reply for another", eth(unix.ETH_P_ARP, arpBody(2, macA, ip4B, ip4A)), anyIP, ReasonARP)
	add("arp/reply of no address", eth(unix.ETH_P_ARP, arpBody(2, macA, none4, ip4A)), anyIP, ReasonARP)
	add("arp/MAC of another inside", eth(unix.ETH_P_ARP, arpBody(2, macB, ip4A, ip4B)), anyMAC, ReasonMAC)
	add("arp/request, MAC of another inside", eth(unix.ETH_P_ARP, arpBody(1, macB, ip4A, ip4B)), anyMAC, ReasonMAC)
	add("arp/RARP operation", eth(unix.ETH_P_ARP, arpBody(3, macA, ip4A, ip4B)), never, ReasonARP)
	for at, name := range map[int]string{0: "hardware", 2: "protocol", 4: "MAC length", 5: "address length"} {
		odd := arpBody(2, macA, ip4A, ip4B)
		odd[at]++
		add("arp/other "+name, eth(unix.ETH_P_ARP, odd), never, ReasonARP)
	}
	add("arp/too short", eth(unix.ETH_P_ARP, arpBody(2, macA, ip4A, ip4B)[:24]), never, ReasonARP)

	add("ipv6/own", v6(ip6A, ip6B, 17, udpTo(1, 2)), always, "")
	add("ipv6/own link-local", v6(linkA, linkB, 17, udpTo(1, 2)), always, "")
	add("ipv6/of a neighbour", v6(ip6B, ip6A, 17, udpTo(1, 2)), anyIP, ReasonIP)
	add("ipv6/link-local of a neighbour", v6(linkB, linkA, 17, udpTo(1, 2)), anyIP, ReasonIP)
	add("ipv6/other link-local", v6(linkOther, linkB, 17, udpTo(1, 2)), anyIP, ReasonIP)
	add("ipv6/no address", v6(none6, allNodes, 17, udpTo(1, 2)), anyIP, ReasonIP)
	add("ipv6/ESP", v6(ip6A, ip6B, 50, make([]byte, 24)), always, "")
	add("ipv6/TCP of a neighbour", v6(ip6B, ip6A, 6, make([]byte, 20)), anyIP, ReasonIP)
	add("ipv6/no next header", v6(ip6A, ip6B, 59, nil), always, "")
	add("ipv6/DHCPv6 request", v6(linkA, allDHCP, 17, udpTo(546, 547)), always, "")
	add("ipv6/DHCPv6 request of another link-local", v6(linkOther, allDHCP, 17, udpTo(546, 547)), always, "")
	add("ipv6/DHCPv6 request of another's address", v6(ip6B, allDHCP, 17, udpTo(546, 547)), anyIP, ReasonIP)
	add("ipv6/DHCPv6 answer", v6(linkA, linkB, 17, udpTo(547, 546)), dhcp, ReasonDHCPServer)
	add("ipv6/DHCPv6 answer from another port", v6(linkA, linkB, 17, udpTo(9547, 546)), dhcp, ReasonDHCPServer)
	add("ipv6/DHCPv6 answer behind a header", v6(linkA, linkB, 0, hopByHop(17, udpTo(547, 546))), dhcp, ReasonDHCPServer)
	add("ipv6/DHCPv6 answer in fragments", v6(linkA, linkB, 44, fragmentHeader(17, 0, true, udpTo(547, 546))), dhcp, ReasonDHCPServer)
	add("ipv6/behind headers, of a neighbour", v6(ip6B, ip6A, 0, hopByHop(60, hopByHop(17, udpTo(1, 2)))), anyIP, ReasonIP)
	add("ipv6/first fragment", v6(ip6A, ip6B, 44, fragmentHeader(17, 0, true, udpTo(1, 2))), always, "")
	add("ipv6/later fragment", v6(ip6A, ip6B, 44, fragmentHeader(17, 7, false, make([]byte, 16))), always, "")
	add("ipv6/later fragment of a neighbour", v6(ip6B, ip6A, 44, fragmentHeader(17, 7, false, make([]byte, 16))), anyIP, ReasonIP)
	add("ipv6/headers that do not end", v6(linkA, linkB, 44, fragmentHeader(60, 0, true, []byte{17, 9, 1, 4, 0, 0, 0, 0})), never, ReasonIP)
	add("ipv6/longer than the frame", v6(ip6A, ip6B, 17, udpTo(1, 2))[:14+44], never, ReasonIP)
	add("ipv6/too short", v6(ip6A, ip6B, 17, udpTo(1, 2))[:14+30], never, ReasonIP)
	sixth := v6(ip6A, ip6B, 17, udpTo(547, 546))
	sixth[14] = 0x50
	add("ipv6/version 5", sixth, never, ReasonIP)

	out = append(out, icmpCases(v6)...)
	return append(out, otherCases(eth)...)
}

func icmpCases(v6 func(from, to netip.Addr, next byte, payload []byte) []byte) (out []frameCase) {
	add := func(name string, from, to netip.Addr, payload []byte, passes int, reason Reason) {
		out = append(out, frameCase{name: name, frame: v6(from, to, unix.IPPROTO_ICMPV6, payload), passes: passes, reason: reason})
	}
	raw := func(name string, from, to netip.Addr, next byte, payload []byte, passes int, reason Reason) {
		out = append(out, frameCase{name: name, frame: v6(from, to, next, payload), passes: passes, reason: reason})
	}
	ping := icmpv6(128, 0, 1, 0, 1)
	add("icmpv6/ping", ip6A, ip6B, ping, always, "")
	add("icmpv6/ping of a neighbour", ip6B, ip6A, ping, anyIP, ReasonIP)
	raw("icmpv6/ping in fragments", ip6A, ip6B, 44, fragmentHeader(58, 0, true, ping), always, "")
	raw("icmpv6/later fragment", ip6A, ip6B, 44, fragmentHeader(58, 2, false, ping), always, "")
	raw("icmpv6/later fragment of a neighbour", ip6B, ip6A, 44, fragmentHeader(58, 2, false, ping), anyIP, ReasonIP)
	raw("icmpv6/first fragment without a type", ip6A, ip6B, 44, fragmentHeader(58, 0, true, nil), never, ReasonND)
	raw("icmpv6/without a type", ip6A, ip6B, 58, nil, never, ReasonND)
	raw("mld/report of none", none6, allMLD, 0, hopByHop(58, icmpv6(mldReport2, 0, 0, 0, 0)), always, "")
	raw("mld/report", linkA, allMLD, 0, hopByHop(58, icmpv6(mldReport2, 0, 0, 0, 0)), always, "")
	raw("mld/report of another link-local", linkOther, allMLD, 0, hopByHop(58, icmpv6(mldReport, make([]byte, 20)...)), always, "")
	raw("mld/report to one", linkOther, linkB, 0, hopByHop(58, icmpv6(mldReport2, 0, 0, 0, 0)), anyIP, ReasonIP)
	raw("mld/report of a neighbour", ip6B, allMLD, 0, hopByHop(58, icmpv6(mldReport2, 0, 0, 0, 0)), anyIP, ReasonIP)

	advert := icmpv6(routerAdvert, make([]byte, 12)...)
	add("ra/", linkA, allNodes, advert, dhcp, ReasonRouter)
	add("ra/of a neighbour", linkB, allNodes, advert, never, ReasonRouter)
	raw("ra/behind a header", linkA, allNodes, 0, hopByHop(58, advert), never, ReasonRouter)
	raw("ra/behind two headers", linkA, allNodes, 60, hopByHop(60, hopByHop(58, advert)), never, ReasonRouter)
	raw("ra/in a fragment", linkA, allNodes, 44, fragmentHeader(58, 0, false, advert), never, ReasonRouter)
	raw("ra/in a first fragment behind a header", linkA, allNodes, 44, fragmentHeader(60, 0, true, hopByHop(58, advert)), never, ReasonRouter)
	raw("ra/behind a fragment's header only", linkA, allNodes, 44, fragmentHeader(60, 0, true, hopByHop(58, nil)), never, ReasonND)
	add("redirect/", linkA, linkB, icmpv6(redirect, make([]byte, 36)...), dhcp, ReasonRouter)

	add("rs/", linkA, allRouters, icmpv6(routerSolicit, 0, 0, 0, 0), always, "")
	add("rs/with MAC", linkA, allRouters, icmpv6(routerSolicit, append(make([]byte, 4), macOption(1, macA)...)...), always, "")
	add("rs/with MAC of another", linkA, allRouters, icmpv6(routerSolicit, append(make([]byte, 4), macOption(1, macB)...)...), anyMAC, ReasonMAC)
	add("rs/of another link-local", linkOther, allRouters, icmpv6(routerSolicit, 0, 0, 0, 0), always, "")
	add("rs/of no address", none6, allRouters, icmpv6(routerSolicit, 0, 0, 0, 0), always, "")
	add("rs/of a neighbour", ip6B, allRouters, icmpv6(routerSolicit, 0, 0, 0, 0), anyIP, ReasonND)
	add("rs/of another link-local to one", linkOther, linkB, icmpv6(routerSolicit, 0, 0, 0, 0), anyIP, ReasonND)

	const ns, na = neighborSolicit, neighborAdvert
	add("ns/", ip6A, allNodes, nd(ns, ip6B), always, "")
	add("ns/with MAC", linkA, allNodes, nd(ns, ip6B, macOption(1, macA)...), always, "")
	add("ns/with MAC and nonce", ip6A, allNodes, nd(ns, ip6B, append(macOption(1, macA), nonceOption...)...), always, "")
	add("ns/with MAC of another", ip6A, allNodes, nd(ns, ip6B, macOption(1, macB)...), anyMAC, ReasonMAC)
	add("ns/MAC of another second", ip6A, allNodes, nd(ns, ip6B, append(nonceOption[:8:8], macOption(1, macB)...)...), anyMAC, ReasonND)
	add("ns/two MACs", ip6A, allNodes, nd(ns, ip6B, append(macOption(1, macA), macOption(1, macB)...)...), anyMAC, ReasonMAC)
	add("ns/of a neighbour", ip6B, allNodes, nd(ns, ip6A), anyIP, ReasonND)
	add("ns/of another link-local", linkOther, allNodes, nd(ns, ip6A), anyIP, ReasonND)
	add("ns/of the link-local of a neighbour", linkB, allNodes, nd(ns, ip6A, macOption(1, macA)...), anyIP, ReasonND)
	add("ns/is it free", none6, allNodes, nd(ns, ip6A), always, "")
	add("ns/is it free, with nonce", none6, allNodes, nd(ns, linkA, nonceOption...), always, "")
	add("ns/is another's free", none6, allNodes, nd(ns, ip6B), anyIP, ReasonND)
	raw("ns/behind a header", ip6A, allNodes, 0, hopByHop(58, nd(ns, ip6B)), never, ReasonND)
	raw("ns/in a fragment", ip6A, allNodes, 44, fragmentHeader(58, 0, false, nd(ns, ip6B)), never, ReasonND)
	add("na/", ip6A, ip6B, nd(na, ip6A), always, "")
	add("na/with MAC", linkA, allNodes, nd(na, ip6A, macOption(2, macA)...), always, "")
	add("na/of the link-local", linkA, allNodes, nd(na, linkA, macOption(2, macA)...), always, "")
	add("na/with MAC of another", ip6A, ip6B, nd(na, ip6A, macOption(2, macB)...), anyMAC, ReasonMAC)
	add("na/MAC of another second", ip6A, ip6B, nd(na, ip6A, append(nonceOption[:8:8], macOption(2, macB)...)...), anyMAC, ReasonND)
	add("na/of a neighbour's address", ip6A, allNodes, nd(na, ip6B, macOption(2, macA)...), anyIP, ReasonND)
	add("na/of a neighbour", ip6B, allNodes, nd(na, ip6B, macOption(2, macA)...), anyIP, ReasonND)
	add("na/of a neighbour's link-local", linkA, allNodes, nd(na, linkB, macOption(2, macA)...), anyIP, ReasonND)
	raw("na/behind a header", ip6A, allNodes, 60, hopByHop(58, nd(na, ip6A)), never, ReasonND)
	raw("na/in a first fragment", ip6A, allNodes, 44, fragmentHeader(58, 0, true, nd(na, ip6A)), never, ReasonND)
	return out
}

func otherCases(eth func(protocol int, payload []byte) []byte) (out []frameCase) {
	add := func(name string, frame []byte, passes int, behind Reason) {
		out = append(out, frameCase{name: name, frame: frame, passes: passes, reason: ReasonProtocol, behind: behind})
	}
	own, other := eth(unix.ETH_P_IP, ipv4(ip4A, 17, 0, nil, udpTo(1, 2))), eth(unix.ETH_P_IP, ipv4(ip4B, 17, 0, nil, udpTo(1, 2)))
	add("other/ethertype", eth(0x88b5, make([]byte, 46)), traffic, "")
	add("other/LLDP", eth(0x88cc, make([]byte, 46)), traffic, "")
	add("other/MPLS", eth(0x8847, make([]byte, 46)), traffic, "")
	add("other/802.3 length", eth(60, make([]byte, 60)), traffic, "")
	add("other/IPX", eth(60, append([]byte{255, 255}, make([]byte, 58)...)), traffic, "")
	add("other/RARP", eth(0x8035, arpBody(3, macA, ip4A, ip4B)), traffic, "")
	add("other/802.2 without SNAP", eth(60, append([]byte{0x42, 0x42, 3}, make([]byte, 57)...)), traffic, "")
	add("other/802.2 of a vendor", eth(60, append([]byte{0xaa, 0xaa, 3, 0, 0, 0xc, 1, 8}, make([]byte, 52)...)), traffic, "")
	for name, organization := range map[string]byte{"RFC 1042": 0, "bridge tunnel": 0xf8} {
		behind := slices.Concat([]byte{0xaa, 0xaa, 3, 0, 0, organization, 8, 6}, arpBody(2, macA, ip4B, ip4A))
		add("other/ARP as another behind "+name, eth(len(behind), behind), never, ReasonProtocol)
	}
	add("tag/802.1Q", tagged(own, 0x8100), traffic, "")
	add("tag/802.1ad", tagged(own, 0x88a8), traffic, "")
	add("tag/of another", tagged(other, 0x8100), never, ReasonIP)
	add("tag/ARP as another", tagged(eth(unix.ETH_P_ARP, arpBody(2, macA, ip4B, ip4A)), 0x8100), never, ReasonARP)
	add("tag/DHCP answer", tagged(eth(unix.ETH_P_IP, ipv4(ip4A, 17, 0, nil, udpTo(67, 68))), 0x8100), never, ReasonDHCPServer)
	add("tag/router", tagged(eth(unix.ETH_P_IPV6, ipv6(linkA, allNodes, 58, icmpv6(routerAdvert, make([]byte, 12)...))), 0x8100), never, ReasonRouter)
	add("tag/two", tagged(own, 0x88a8, 0x8100), never, ReasonProtocol)
	add("tag/two, of another", tagged(other, 0x8100, 0x8100), never, ReasonProtocol)
	add("tag/three", tagged(own, 0x88a8, 0x8100, 0x8100), never, ReasonProtocol)
	return out
}
