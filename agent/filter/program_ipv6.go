package filter

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Types of ICMPv6 (RFC 4861, RFC 2710, RFC 3810).
const (
	mldReport         = 131
	mldDone           = 132
	routerSolicit     = 133
	routerAdvert      = 134
	neighborSolicit   = 135
	neighborAdvert    = 136
	redirect          = 137
	mldReport2        = 143
	ipv6Header        = 40
	ipv6Length        = 4 // offsets in the IPv6 header
	ipv6NextHeader    = 6
	ipv6Source        = 8
	ipv6Destination   = 24
	solicitTarget     = 8 // offset in a solicitation or advertisement
	solicitOptions    = 24
	routerSolicitOpts = 8
)

func icmp(typ byte) rule { return transport(0, 1, typ) }

func unspecified() rule { return network(ipv6Source, 16, make([]byte, 16)...) }

// linkLocal matches a source in fe80::/10.
func linkLocal() rule {
	return masked(inNetwork, ipv6Source, expr.CmpOpEq, []byte{0xff, 0xc0}, []byte{0xfe, 0x80})
}

// laterFragment matches a fragment that does not begin its packet, if the fragment header is
// the first.
func laterFragment() rule {
	return all(network(ipv6NextHeader, 1, unix.IPPROTO_FRAGMENT),
		masked(inNetwork, ipv6Header+2, expr.CmpOpNeq, []byte{0xff, 0xf8}, []byte{0, 0}))
}

func ownIPv6() rule { return owns(setV6, inNetwork, ipv6Source, 16) }

// ipv6Chains check IPv6. The kernel knows the upper protocol only if it can follow the
// extension headers to their end within the frame; what it cannot follow is dropped, so
// nothing hides behind them (RFC 7113).
//
// The link-local addresses of guests that make other ones than those that follow from the
// MAC (RFC 7217) are not in the log. With such a source a guest may ask the node for a
// router or for DHCPv6, and report multicast groups, which needs no answer that goes by
// neighbour discovery. It may not solicit or advertise neighbours with it, or send anything
// else, because then it could take the link-local address of another.
func ipv6Chains() []chainDef {
	allServers := []byte{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2} // ff02::1:2
	return []chainDef{
		{family: bridge, name: "ipv6", rules: []rule{
			all(protocol(unix.IPPROTO_ICMPV6), jump("icmpv6")),
			all(meta(expr.MetaKeyL4PROTO), ownIPv6(), jump("ipv6-dhcp")),
			all(meta(expr.MetaKeyL4PROTO), port(setAnyIP), jump("ipv6-dhcp")),
			all(linkLocal(), network(ipv6Destination, 16, allServers...), udp(dhcpv6Client, dhcpv6Server), jump("request")),
			jump(dropChain(ReasonIP)),
		}},
		{family: bridge, name: "ipv6-dhcp", rules: []rule{
			all(noProtocol(unix.IPPROTO_UDP), accept()),
			all(protocol(unix.IPPROTO_UDP), portOutside(dhcpv6Client, dhcpv6Server), accept()),
			all(udp(nil, dhcpv6Client), notPort(setDHCP), jump(dropChain(ReasonDHCPServer))),
			all(udp(nil, dhcpv6Server), jump("request")),
			all(udp(nil, dhcpv6Client), accept()),
			all(protocol(unix.IPPROTO_UDP), laterFragment(), accept()),
			// The ports are behind headers that do not end in this fragment.
			jump(dropChain(ReasonIP)),
		}},
		// A first fragment that has no type, and later fragments behind more than the IPv6
		// header, are dropped.
		{family: bridge, name: "icmpv6", rules: []rule{
			all(icmp(routerAdvert), jump("nd-router")),
			all(icmp(redirect), jump("nd-router")),
			all(icmp(routerSolicit), jump("nd-plain")),
			all(icmp(neighborSolicit), jump("nd-plain")),
			all(icmp(neighborAdvert), jump("nd-plain")),
			all(icmp(mldReport), jump("mld")),
			all(icmp(mldDone), jump("mld")),
			all(icmp(mldReport2), jump("mld")),
			all(transport(0, 1), jump("icmpv6-source")),
			all(laterFragment(), jump("icmpv6-source")),
			jump(dropChain(ReasonND)),
		}},
		{family: bridge, name: "icmpv6-source", rules: []rule{
			all(ownIPv6(), accept()),
			all(port(setAnyIP), accept()),
			jump(dropChain(ReasonIP)),
		}},
		{family: bridge, name: "mld", rules: []rule{
			all(unspecified(), network(ipv6Destination, 1, 0xff), accept()),
			all(linkLocal(), network(ipv6Destination, 1, 0xff), accept()),
			jump("icmpv6-source"),
		}},
	}
}

// ndChains check neighbour discovery (RFC 4861). nf_tables reads fields at fixed places only,
// so the messages are taken in the forms that hosts send: without extension headers (RFC
// 6980 forbids fragments), and with no option, one option, or for a solicitation the MAC
// followed by a nonce (RFC 7527). With allow_mac_spoofing the options are any.
func ndChains() []chainDef {
	length := func(n byte) rule { return network(ipv6Length, 2, 0, n) }
	option := func(offset uint32, typ byte) rule { return transport(offset, 2, typ, 1) }
	ownOption := func(offset uint32, typ byte) rule {
		return all(option(offset, typ), owns(setMACs, inTransport, offset+2, 6))
	}
	const (
		sourceMAC, targetMAC, nonce = 1, 2, 14
		opts                        = solicitOptions
	)
	withoutHeaders := network(ipv6NextHeader, 1, unix.IPPROTO_ICMPV6)
	return []chainDef{
		{family: bridge, name: "nd-router", rules: []rule{
			all(notPort(setDHCP), jump(dropChain(ReasonRouter))),
			all(withoutHeaders, jump("icmpv6-source")),
			jump(dropChain(ReasonND)),
		}},
		{family: bridge, name: "nd-plain", rules: []rule{
			all(withoutHeaders, icmp(routerSolicit), jump("rs")),
			all(withoutHeaders, icmp(neighborSolicit), jump("ns")),
			all(withoutHeaders, icmp(neighborAdvert), jump("na")),
			jump(dropChain(ReasonND)),
		}},
		{family: bridge, name: "rs", rules: []rule{
			all(length(8), jump("rs-source")),
			all(port(setAnyMAC), jump("rs-source")),
			all(length(16), ownOption(routerSolicitOpts, sourceMAC), jump("rs-source")),
			all(option(routerSolicitOpts, sourceMAC), jump(dropChain(ReasonMAC))),
			jump(dropChain(ReasonND)),
		}},
		{family: bridge, name: "rs-source", rules: []rule{
			all(ownIPv6(), jump("request")),
			all(port(setAnyIP), jump("request")),
			all(linkLocal(), network(ipv6Destination, 1, 0xff), jump("request")),
			all(unspecified(), network(ipv6Destination, 1, 0xff), jump("request")),
			jump(dropChain(ReasonND)),
		}},
		{family: bridge, name: "ns", rules: []rule{
			all(length(opts), jump("ns-source")),
			all(port(setAnyMAC), jump("ns-source")),
			all(length(opts+8), ownOption(opts, sourceMAC), jump("ns-source")),
			all(length(opts+8), option(opts, nonce), jump("ns-source")),
			all(length(opts+16), ownOption(opts, sourceMAC), option(opts+8, nonce), jump("ns-source")),
			all(option(opts, sourceMAC), jump(dropChain(ReasonMAC))),
			jump(dropChain(ReasonND)),
		}},
		// Without a source the question is whether an address is free (RFC 4862), which is asked
		// of own addresses.
		{family: bridge, name: "ns-source", rules: []rule{
			all(ownIPv6(), jump("request")),
			all(port(setAnyIP), jump("request")),
			all(unspecified(), owns(setV6, inTransport, solicitTarget, 16), jump("request")),
			jump(dropChain(ReasonND)),
		}},
		{family: bridge, name: "na", rules: []rule{
			all(length(opts), jump("na-source")),
			all(port(setAnyMAC), jump("na-source")),
			all(length(opts+8), ownOption(opts, targetMAC), jump("na-source")),
			all(option(opts, targetMAC), jump(dropChain(ReasonMAC))),
			jump(dropChain(ReasonND)),
		}},
		{family: bridge, name: "na-source", rules: []rule{
			all(port(setAnyIP), accept()),
			all(ownIPv6(), owns(setV6, inTransport, solicitTarget, 16), accept()),
			jump(dropChain(ReasonND)),
		}},
	}
}
