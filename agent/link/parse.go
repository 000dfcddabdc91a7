package link

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"rutter/log"
	"rutter/projections/desired"
)

// parseLink reads a NEWLINK (struct ifinfomsg and attributes, linux/if_link.h).
func parseLink(b []byte) (rawLink, bool) {
	if len(b) < unix.SizeofIfInfomsg {
		return rawLink{}, false
	}
	l := rawLink{parentNS: -1}
	l.Index = int32(native.Uint32(b[4:]))
	l.Up = native.Uint32(b[8:])&unix.IFF_UP != 0
	l.QuietIPv6 = true // unless the kernel says something about IPv6
	attrs(b[unix.SizeofIfInfomsg:], func(typ uint16, value []byte) {
		switch typ {
		case unix.IFLA_IFNAME:
			l.Name = asText(value)
		case unix.IFLA_MTU:
			l.MTU = asU32(value)
		case unix.IFLA_ADDRESS:
			l.MAC = asMAC(value)
		case unix.IFLA_LINK:
			l.parent, l.hasParent = int32(asU32(value)), asU32(value) != 0
		case unix.IFLA_LINK_NETNSID:
			l.parentNS = int32(asU32(value))
		case unix.IFLA_GROUP:
			l.group = asU32(value)
		case unix.IFLA_LINKINFO:
			l.parseInfo(value)
		case unix.IFLA_AF_SPEC:
			l.parseAFSpec(value)
		}
	})
	if l.Kind == kindMacvlan {
		l.QuietIPv6 = false // not asked for there
	}
	return l, true
}

func (l *rawLink) parseInfo(b []byte) {
	var data []byte
	attrs(b, func(typ uint16, value []byte) {
		switch typ {
		case unix.IFLA_INFO_KIND:
			l.Kind = asText(value)
		case unix.IFLA_INFO_DATA:
			data = value
		}
	})
	switch l.Kind {
	case kindVXLAN:
		attrs(data, l.parseVXLAN)
	case kindVLAN:
		attrs(data, func(typ uint16, value []byte) {
			if typ == unix.IFLA_VLAN_ID {
				l.VLAN = asU16(value)
			}
		})
	case kindMacvlan:
		attrs(data, func(typ uint16, value []byte) {
			if typ == unix.IFLA_MACVLAN_MODE {
				l.Bridge = asU32(value) == macvlanModeBridge
			}
		})
	}
}

func (l *rawLink) parseVXLAN(typ uint16, value []byte) {
	switch typ {
	case unix.IFLA_VXLAN_ID:
		l.VNI = asU32(value)
	case unix.IFLA_VXLAN_LOCAL, unix.IFLA_VXLAN_LOCAL6:
		l.Local = asAddr(value)
	case unix.IFLA_VXLAN_PORT:
		l.Port = asBE16(value)
	case unix.IFLA_VXLAN_LEARNING:
		l.Learning = asBool(value)
	case unix.IFLA_VXLAN_PROXY:
		l.Proxy = asBool(value)
	case unix.IFLA_VXLAN_L2MISS:
		l.L2Miss = asBool(value)
	case unix.IFLA_VXLAN_L3MISS:
		l.L3Miss = asBool(value)
	}
}

// parseAFSpec finds out whether the kernel may give the link IPv6 addresses: no
// if it makes none, nor if IPv6 is off on the link.
func (l *rawLink) parseAFSpec(b []byte) {
	attrs(b, func(fam uint16, value []byte) {
		if fam != unix.AF_INET6 {
			return
		}
		l.QuietIPv6 = false
		attrs(value, func(typ uint16, value []byte) {
			switch typ {
			case unix.IFLA_INET6_ADDR_GEN_MODE:
				if len(value) == 1 && value[0] == inet6AddrGenModeNone {
					l.QuietIPv6 = true
				}
			case unix.IFLA_INET6_CONF:
				if at := 4 * devconfDisableIPv6; len(value) >= at+4 && native.Uint32(value[at:]) != 0 {
					l.QuietIPv6 = true
				}
			}
		})
	})
}

// rawNeigh is a neighbour or forwarding entry (struct ndmsg, linux/neighbour.h).
type rawNeigh struct {
	index int32
	state uint16
	flags uint8
	dst   netip.Addr
	mac   log.MAC
	port  uint16
}

func parseNeigh(b []byte) (n rawNeigh, ok bool) {
	if len(b) < sizeofNdMsg {
		return n, false
	}
	n.index, n.state, n.flags = int32(native.Uint32(b[4:])), native.Uint16(b[8:]), b[10]
	attrs(b[sizeofNdMsg:], func(typ uint16, value []byte) {
		switch typ {
		case unix.NDA_DST:
			n.dst = asAddr(value)
		case unix.NDA_LLADDR:
			n.mac = asMAC(value)
		case unix.NDA_PORT:
			n.port = asBE16(value)
		}
	})
	return n, true
}

// parseAddress reads a NEWADDR (struct ifaddrmsg). The local address of IPv4 is
// IFA_LOCAL, where IFA_ADDRESS may be a peer's; IPv6 has IFA_ADDRESS alone.
func parseAddress(b []byte) (index int32, prefix netip.Prefix, permanent, ok bool) {
	if len(b) < unix.SizeofIfAddrmsg {
		return 0, netip.Prefix{}, false, false
	}
	bits, flags := int(b[1]), uint32(b[2])
	var local, address netip.Addr
	attrs(b[unix.SizeofIfAddrmsg:], func(typ uint16, value []byte) {
		switch typ {
		case unix.IFA_LOCAL:
			local = asAddr(value)
		case unix.IFA_ADDRESS:
			address = asAddr(value)
		case unix.IFA_FLAGS:
			flags = asU32(value)
		}
	})
	if !local.IsValid() {
		local = address
	}
	prefix = netip.PrefixFrom(local, bits)
	return int32(native.Uint32(b[4:])), prefix, flags&unix.IFA_F_PERMANENT != 0, prefix.IsValid()
}

type rawRoute struct {
	desired.Route
	index int32
}

// parseRoute reads a NEWROUTE (struct rtmsg) if the route is ours.
func parseRoute(b []byte) (r rawRoute, ok bool) {
	if len(b) < unix.SizeofRtMsg || b[5] != RouteProtocol || b[4] != unix.RT_TABLE_MAIN {
		return r, false
	}
	dst := netip.IPv4Unspecified()
	if b[0] == unix.AF_INET6 {
		dst = netip.IPv6Unspecified()
	}
	attrs(b[unix.SizeofRtMsg:], func(typ uint16, value []byte) {
		switch typ {
		case unix.RTA_DST:
			dst = asAddr(value)
		case unix.RTA_GATEWAY:
			r.Gateway = asAddr(value)
		case unix.RTA_OIF:
			r.index = int32(asU32(value))
		}
	})
	r.Dst = netip.PrefixFrom(dst, int(b[1]))
	return r, r.Dst.IsValid()
}

// parseProbes reads the part of a NEWNEIGHTBL that is about one link (struct
// ndtmsg, NDTA_PARMS). The tables' own parameters come without an ifindex.
func parseProbes(b []byte) (index int32, fam uint8, probes Probes, ok bool) {
	if len(b) < sizeofNdtMsg {
		return 0, 0, Probes{}, false
	}
	attrs(b[sizeofNdtMsg:], func(typ uint16, value []byte) {
		if typ != ndtaParms {
			return
		}
		attrs(value, func(typ uint16, value []byte) {
			switch typ {
			case ndtpaIfindex:
				index = int32(asU32(value))
			case ndtpaAppProbes:
				probes.App = asU32(value)
			case ndtpaMcastProbe:
				probes.Mcast = asU32(value)
			}
		})
	})
	probes.Known = index != 0
	return index, b[0], probes, index != 0
}
