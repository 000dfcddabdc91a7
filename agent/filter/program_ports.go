package filter

import (
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const (
	inLink      = expr.PayloadBaseLLHeader
	inNetwork   = expr.PayloadBaseNetworkHeader
	inTransport = expr.PayloadBaseTransportHeader
)

// portReasons are counted by port, and have the number of their place here, from 1 on, in
// the keys of the set of drops.
var portReasons = []Reason{
	ReasonMAC, ReasonIP, ReasonARP, ReasonND, ReasonDHCPServer, ReasonRouter, ReasonProtocol, ReasonRate,
}

// program is every chain of our tables except those of segments. It is the same for all
// ports: what they differ in is in the sets. Each chain that decides about frames ends with
// a drop, and lets pass only what matches; a field that a frame is too short for does not
// match.
func program() []chainDef {
	return slices.Concat(
		[]chainDef{
			{family: bridge, name: "prerouting", base: true, hook: hookBridgePrerouting, priority: priorityBridge, rules: []rule{
				all(port(setPorts), jump("frame")),
			}},
			// The bridge forwards no frame to the addresses that IEEE 802.1D reserves: it gives
			// them to the stack of the node, past the hook above. (And 01:80:c2:00:00:0e past this
			// one too: see closedChains.)
			{family: bridge, name: "input", base: true, hook: hookBridgeInput, priority: priorityBridge, rules: []rule{
				all(port(setPorts), toReserved(), jump(dropChain(ReasonProtocol))),
			}},
		},
		linkChains(), arpChains(), ipv4Chains(), ipv6Chains(), ndChains(),
		dropChains(bridge, setDrops, portKey, portReasons...),
		closedChains(),
		underlayChains(),
	)
}

// portKey loads the port and a reason.
func portKey(number []byte) rule {
	return append(meta(expr.MetaKeyIIF), &expr.Immediate{Register: regSecond, Data: number})
}

// closedChains drop what comes to the node's own stack by a host end, past its bridge: frames
// to 01:80:c2:00:00:0e (LLDP), and everything if another program takes it out of its bridge.
func closedChains() []chainDef {
	closed := []rule{all(port(setClosed), jump(dropChain(ReasonProtocol)))}
	return slices.Concat([]chainDef{
		{family: inet, name: "prerouting", base: true, hook: hookInetPrerouting, priority: priorityRaw, rules: closed},
		{family: arp, name: "input", base: true, hook: hookARPInput, priority: priorityRaw, rules: closed},
	}, dropChains(inet, setClosedDrops, portKey, ReasonProtocol), dropChains(arp, setClosedDrops, portKey, ReasonProtocol))
}

// toReserved matches frames to 01:80:c2:00:00:00 to 0f.
func toReserved() rule {
	return masked(inLink, 0, expr.CmpOpEq, []byte{255, 255, 255, 255, 255, 0xf0}, []byte{1, 0x80, 0xc2, 0, 0, 0})
}

// multicast matches frames to a multicast address other than broadcast, at a lower cost than to
// read the address.
func multicast() rule { return meta(expr.MetaKeyPKTTYPE, unix.PACKET_MULTICAST) }

func notMulticast() rule {
	return append(meta(expr.MetaKeyPKTTYPE), &expr.Cmp{Op: expr.CmpOpNeq, Register: regFirst, Data: []byte{unix.PACKET_MULTICAST}})
}

// ownIPv4Frame matches IPv4 without a tag whose source MAC and address are the port's. It is
// one lookup in place of those of the chains frame, ether and ipv4, and takes nothing that
// these would not take.
func ownIPv4Frame() rule {
	return all(meta(expr.MetaKeyIIF), load(inLink, 6, 8, regSecond), load(inNetwork, ipv4Source, 4, regFourth), in(setWhole4))
}

// snap matches 802.3 frames with the 802.2 header of RFC 1042 (organization 0) or 802.1H (0xf8),
// in which another ethertype follows: some systems take IPv4 and ARP from there.
func snap(organization byte) rule {
	return all(meta(expr.MetaKeyPROTOCOL, 0, unix.ETH_P_802_2), network(0, 6, 0xaa, 0xaa, 3, 0, 0, organization))
}

var (
	etherIPv4 = []byte{8, 0}
	etherARP  = []byte{8, 6}
	etherIPv6 = []byte{0x86, 0xdd}
)

// linkChains check the frame. The kernel takes the outermost 802.1Q or 802.1ad tag out of a
// frame before our hook: the protocol is then the one behind the tag, but the ethertype read
// from the frame is the tag's.
func linkChains() []chainDef {
	untagged := func(ether []byte, chain string) rule {
		return all(link(12, 2, ether...), meta(expr.MetaKeyPROTOCOL, ether...), jump(chain))
	}
	behind := func(ether []byte, next rule) rule { return all(meta(expr.MetaKeyPROTOCOL, ether...), next) }
	return []chainDef{
		{family: bridge, name: "frame", rules: []rule{
			all(notMulticast(), ownIPv4Frame(), jump("ipv4-dhcp")),
			all(owns(setMACs, inLink, 6, 6), jump("ether")),
			all(port(setAnyMAC), jump("ether")),
			jump(dropChain(ReasonMAC)),
		}},
		{family: bridge, name: "ether", rules: []rule{
			all(multicast(), toReserved(), jump(dropChain(ReasonProtocol))),
			untagged(etherIPv4, "ipv4"),
			untagged(etherIPv6, "ipv6"),
			untagged(etherARP, "arp"),
			all(port(setAnyOther), jump("other")),
			jump(dropChain(ReasonProtocol)),
		}},
		// allow_restricted_traffic relaxes the protocol, and not what is said in IPv4, IPv6 and
		// ARP behind a tag. What is behind two tags, or behind an ethertype in an 802.2 header, is
		// not read.
		{family: bridge, name: "other", rules: []rule{
			behind(etherIPv4, jump("ipv4")),
			behind(etherIPv6, jump("ipv6")),
			behind(etherARP, jump("arp")),
			all(snap(0), jump("tags")),
			all(snap(0xf8), jump("tags")),
			behind([]byte{0x81, 0x00}, jump("tags")),
			behind([]byte{0x88, 0xa8}, jump("tags")),
			accept(),
		}},
		{family: bridge, name: "tags", rules: []rule{
			all(port(setAnyIP), accept()),
			jump(dropChain(ReasonProtocol)),
		}},
	}
}

// arpChains check ARP (RFC 826): hardware and protocol types and lengths, the sender's
// addresses, and that a probe (RFC 5227: no sender address) is about an own address.
func arpChains() []chainDef {
	const (
		senderMAC, senderIP = 8, 14
		targetIP            = 24
	)
	return []chainDef{
		{family: bridge, name: "arp", rules: []rule{
			all(network(targetIP, 4), network(0, 6, 0, 1, 8, 0, 6, 4), jump("arp-mac")),
			jump(dropChain(ReasonARP)),
		}},
		{family: bridge, name: "arp-mac", rules: []rule{
			all(owns(setMACs, inNetwork, senderMAC, 6), jump("arp-operation")),
			all(port(setAnyMAC), jump("arp-operation")),
			jump(dropChain(ReasonMAC)),
		}},
		{family: bridge, name: "arp-operation", rules: []rule{
			all(network(6, 2, 0, 1), jump("arp-request")),
			all(network(6, 2, 0, 2), jump("arp-reply")),
			jump(dropChain(ReasonARP)),
		}},
		{family: bridge, name: "arp-request", rules: []rule{
			all(owns(setV4, inNetwork, senderIP, 4), jump("request")),
			all(port(setAnyIP), jump("request")),
			all(network(senderIP, 4, 0, 0, 0, 0), owns(setV4, inNetwork, targetIP, 4), jump("request")),
			jump(dropChain(ReasonARP)),
		}},
		{family: bridge, name: "arp-reply", rules: []rule{
			all(owns(setV4, inNetwork, senderIP, 4), accept()),
			all(port(setAnyIP), accept()),
			jump(dropChain(ReasonARP)),
		}},
		// What the answerer of the node has to look at.
		{family: bridge, name: "request", rules: []rule{
			all(withinRate(), accept()),
			jump(dropChain(ReasonRate)),
		}},
	}
}

// The ports of DHCP and DHCPv6, as pairs of bytes.
var (
	dhcpServer   = []byte{0, 67}
	dhcpClient   = []byte{0, 68}
	dhcpv6Client = []byte{2, 34} // 546
	dhcpv6Server = []byte{2, 35} // 547
)

// udp matches the source and destination port of a packet, or of its first fragment.
func udp(source, destination []byte) rule {
	r := protocol(unix.IPPROTO_UDP)
	if source != nil {
		r = append(r, transport(0, 2, source...)...)
	}
	return append(r, transport(2, 2, destination...)...)
}

const ipv4Source = 12 // offset in the IPv4 header

// portOutside matches a destination port that is there, and is not from the one to the other.
func portOutside(from, to []byte) rule {
	return append(transport(2, 2), &expr.Range{Op: expr.CmpOpNeq, Register: regFirst, FromData: from, ToData: to})
}

// ipv4Chains check IPv4. The kernel knows the protocol (and we load it) only if the header is
// sound: version, header length, and a total length that the frame has.
//
// ipv4-dhcp decides about frames whose source is right; what its first rules let pass is most
// of all traffic. Each rule that lets pass loads the protocol.
func ipv4Chains() []chainDef {
	return []chainDef{
		{family: bridge, name: "ipv4", rules: []rule{
			all(meta(expr.MetaKeyL4PROTO), owns(setV4, inNetwork, ipv4Source, 4), jump("ipv4-dhcp")),
			all(meta(expr.MetaKeyL4PROTO), port(setAnyIP), jump("ipv4-dhcp")),
			all(network(ipv4Source, 4, 0, 0, 0, 0), udp(dhcpClient, dhcpServer), jump("request")),
			jump(dropChain(ReasonIP)),
		}},
		// Clients look at the destination port only, so the source port of an answer is any.
		{family: bridge, name: "ipv4-dhcp", rules: []rule{
			all(noProtocol(unix.IPPROTO_UDP), accept()),
			all(protocol(unix.IPPROTO_UDP), portOutside(dhcpServer, dhcpClient), accept()),
			all(udp(nil, dhcpClient), notPort(setDHCP), jump(dropChain(ReasonDHCPServer))),
			all(udp(nil, dhcpServer), jump("request")),
			all(udp(nil, dhcpClient), accept()),
			all(protocol(unix.IPPROTO_UDP), masked(inNetwork, 6, expr.CmpOpNeq, []byte{0x1f, 0xff}, []byte{0, 0}), accept()), // a later fragment
			jump(dropChain(ReasonIP)),
		}},
	}
}

// underlayChains check VXLAN packets, after reassembly. The VNI is in the VXLAN header
// (RFC 7348), after 8 bytes of UDP and 4 of flags.
func underlayChains() []chainDef {
	const vni = 8 + 4
	from4 := all(meta(expr.MetaKeyNFPROTO, unix.NFPROTO_IPV4), load(inNetwork, ipv4Source, 4, regFirst), load(inTransport, vni, 3, regSecond), in(setPeers4))
	from6 := all(meta(expr.MetaKeyNFPROTO, unix.NFPROTO_IPV6), load(inNetwork, ipv6Source, 16, regFirst), load(inTransport, vni, 3, regAfter6), in(setPeers6))
	toVXLAN := all(protocol(unix.IPPROTO_UDP), transport(2, 2), in(setVXLANPorts))
	byUnderlay := all(meta(expr.MetaKeyIIFNAME), in(setInterfaces))
	return slices.Concat([]chainDef{
		{family: inet, name: "input", base: true, hook: hookInetInput, priority: priorityRaw, rules: []rule{
			all(toVXLAN, byUnderlay, from4, accept()), // most of all, in one rule
			all(toVXLAN, jump("vxlan")),
		}},
		{family: inet, name: "vxlan", rules: []rule{
			all(byUnderlay, from6, accept()),
			all(byUnderlay, jump(dropChain(ReasonPeer))),
			jump(dropChain(ReasonInterface)),
		}},
	}, dropChains(inet, setDrops, func(number []byte) rule {
		return rule{&expr.Immediate{Register: regFirst, Data: number}}
	}, underlayReasons...))
}

// underlayReasons are as portReasons, for the set of drops in family inet.
var underlayReasons = []Reason{ReasonPeer, ReasonInterface}

// segmentChain drops what reaches a bridge, after packet sockets have seen it.
func segmentChain(s Segment) chainDef {
	return chainDef{
		family: netdev, name: segmentName(s.Index), base: true, hook: hookNetdevIngress, priority: priorityNetdev,
		drops: true, device: s.Name, rules: []rule{all(meta(expr.MetaKeyIIF), count(setDrops))},
	}
}
