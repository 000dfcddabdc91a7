package wire

import (
	"net/netip"

	"rutter/projections/desired"

	"golang.org/x/sys/unix"

	"rutter/agent/internal/nlmsg"
	"rutter/agent/link/plan"
	"rutter/log"
)

// ParseLink reads a NEWLINK (struct ifinfomsg and attributes, linux/if_link.h).
func ParseLink(b []byte) (RawLink, bool) {
	if len(b) < unix.SizeofIfInfomsg {
		return RawLink{}, false
	}
	l := RawLink{ParentNS: -1}
	l.Index = int32(native.Uint32(b[4:]))
	l.Up = native.Uint32(b[8:])&unix.IFF_UP != 0
	l.Loopback = native.Uint32(b[8:])&unix.IFF_LOOPBACK != 0
	l.QuietIPv6 = true // unless the message has an IPv6 part
	nlmsg.Attrs(b[unix.SizeofIfInfomsg:], func(typ uint16, value []byte) {
		switch typ {
		case unix.IFLA_IFNAME:
			l.Name = asText(value)
		case unix.IFLA_MTU:
			l.MTU = AsU32(value)
		case unix.IFLA_ADDRESS:
			l.MAC = asMAC(value)
		case unix.IFLA_LINK:
			l.ParentIndex, l.HasParent = int32(AsU32(value)), AsU32(value) != 0
		case unix.IFLA_LINK_NETNSID:
			l.ParentNS = int32(AsU32(value))
		case unix.IFLA_OPERSTATE:
			l.Running = len(value) == 1 && value[0] == operUp
		case unix.IFLA_MASTER:
			l.MasterIndex = int32(AsU32(value))
		case unix.IFLA_GROUP:
			l.Group = AsU32(value)
		case unix.IFLA_IFALIAS:
			l.Alias = asText(value)
		case unix.IFLA_LINKINFO:
			l.parseInfo(value)
		case unix.IFLA_AF_SPEC:
			l.parseAFSpec(value)
		}
	})
	if l.Kind == plan.KindMacvlan {
		l.QuietIPv6 = false // not asked for there
	}
	return l, true
}

// ParsePort reads a NEWLINK of family AF_BRIDGE, which is about a bridge's port.
func ParsePort(b []byte) (index int32, flags plan.PortFlags, ok bool) {
	if len(b) < unix.SizeofIfInfomsg || b[0] != unix.AF_BRIDGE {
		return 0, flags, false
	}
	nlmsg.Attrs(b[unix.SizeofIfInfomsg:], func(typ uint16, value []byte) {
		if typ == unix.IFLA_PROTINFO {
			flags, ok = portFlags(value), true
		}
	})
	return int32(native.Uint32(b[4:])), flags, ok
}

func portFlags(b []byte) (f plan.PortFlags) {
	nlmsg.Attrs(b, func(typ uint16, value []byte) {
		switch typ {
		case brportLearning:
			f.Learning = asBool(value)
		case brportUnicastFlood:
			f.Flood = asBool(value)
		case brportMcastFlood:
			f.Multicast = asBool(value)
		case brportBcastFlood:
			f.Broadcast = asBool(value)
		}
	})
	return f
}

func (l *RawLink) parseInfo(b []byte) {
	var data, port []byte
	nlmsg.Attrs(b, func(typ uint16, value []byte) {
		switch typ {
		case unix.IFLA_INFO_KIND:
			l.Kind = asText(value)
		case unix.IFLA_INFO_DATA:
			data = value
		case unix.IFLA_INFO_SLAVE_DATA:
			port = value
		}
	})
	l.Flags = portFlags(port)
	switch l.Kind {
	case plan.KindBridge:
		nlmsg.Attrs(data, func(typ uint16, value []byte) {
			switch typ {
			case brStpState:
				l.STP = AsU32(value) != 0
			case brMcastSnooping:
				l.Snooping = asBool(value)
			}
		})
	case plan.KindVXLAN:
		nlmsg.Attrs(data, l.parseVXLAN)
	case plan.KindTap:
		l.User = desired.NoUser // without an owner any user of the node may open it
		nlmsg.Attrs(data, func(typ uint16, value []byte) {
			if typ == tunOwner {
				l.User = AsU32(value)
			}
		})
	case plan.KindVLAN:
		nlmsg.Attrs(data, func(typ uint16, value []byte) {
			if typ == unix.IFLA_VLAN_ID {
				l.VLAN = asU16(value)
			}
		})
	case plan.KindMacvlan:
		nlmsg.Attrs(data, func(typ uint16, value []byte) {
			if typ == unix.IFLA_MACVLAN_MODE {
				l.Bridge = AsU32(value) == macvlanModeBridge
			}
		})
	}
}

func (l *RawLink) parseVXLAN(typ uint16, value []byte) {
	switch typ {
	case unix.IFLA_VXLAN_ID:
		l.VNI = AsU32(value)
	case unix.IFLA_VXLAN_LINK:
		l.Device = int32(AsU32(value))
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

// parseAFSpec finds whether the kernel may give the link IPv6 addresses: not if it
// generates none, nor if IPv6 is off on the link.
func (l *RawLink) parseAFSpec(b []byte) {
	nlmsg.Attrs(b, func(fam uint16, value []byte) {
		if fam != unix.AF_INET6 {
			return
		}
		l.QuietIPv6 = false
		nlmsg.Attrs(value, func(typ uint16, value []byte) {
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

// RawNeigh is a neighbour or forwarding entry (struct ndmsg, linux/neighbour.h).
type RawNeigh struct {
	Index int32
	State uint16
	Flags uint8
	Dst   netip.Addr
	MAC   log.MAC
	Port  uint16
	// Master: the entry is a bridge's, and Index is its port's.
	Master bool
	VLAN   uint16 // of an entry of a bridge
}

// IsStatic reports whether the entry is one of a bridge that another program, or we, made:
// no address of a port, and nothing that the bridge has learned. A kernel with
// CONFIG_BRIDGE_VLAN_FILTERING adds a copy for each VLAN of the port, and deletes it with the
// entry; these are not meant (br_fdb_add, linux net/bridge/br_fdb.c).
func (n *RawNeigh) IsStatic() bool {
	return n.Master && n.State == unix.NUD_NOARP && n.VLAN == 0
}

func ParseNeigh(b []byte) (n RawNeigh, ok bool) {
	if len(b) < SizeofNdMsg {
		return n, false
	}
	n.Index, n.State, n.Flags = int32(native.Uint32(b[4:])), native.Uint16(b[8:]), b[10]
	nlmsg.Attrs(b[SizeofNdMsg:], func(typ uint16, value []byte) {
		switch typ {
		case unix.NDA_DST:
			n.Dst = asAddr(value)
		case unix.NDA_LLADDR:
			n.MAC = asMAC(value)
		case unix.NDA_PORT:
			n.Port = asBE16(value)
		case unix.NDA_VLAN:
			n.VLAN = asU16(value)
		case unix.NDA_MASTER:
			n.Master = true
		}
	})
	return n, true
}

// ParseAddress reads a NEWADDR (struct ifaddrmsg). The local address of IPv4 is
// IFA_LOCAL, because IFA_ADDRESS may be a peer's; IPv6 has only IFA_ADDRESS.
func ParseAddress(b []byte) (index int32, prefix netip.Prefix, permanent, ok bool) {
	if len(b) < unix.SizeofIfAddrmsg {
		return 0, netip.Prefix{}, false, false
	}
	bits, flags := int(b[1]), uint32(b[2])
	var local, address netip.Addr
	nlmsg.Attrs(b[unix.SizeofIfAddrmsg:], func(typ uint16, value []byte) {
		switch typ {
		case unix.IFA_LOCAL:
			local = asAddr(value)
		case unix.IFA_ADDRESS:
			address = asAddr(value)
		case unix.IFA_FLAGS:
			flags = AsU32(value)
		}
	})
	if !local.IsValid() {
		local = address
	}
	prefix = netip.PrefixFrom(local, bits)
	return int32(native.Uint32(b[4:])), prefix, flags&unix.IFA_F_PERMANENT != 0, prefix.IsValid()
}

// RawRoute is one of our routes, and the ifindex of its link.
type RawRoute struct {
	desired.Route
	Index int32
}

// ParseRoute reads a NEWROUTE (struct rtmsg) if the route is ours.
func ParseRoute(b []byte) (r RawRoute, ok bool) {
	if len(b) < unix.SizeofRtMsg || b[5] != plan.RouteProtocol || b[4] != unix.RT_TABLE_MAIN {
		return r, false
	}
	dst := netip.IPv4Unspecified()
	if b[0] == unix.AF_INET6 {
		dst = netip.IPv6Unspecified()
	}
	nlmsg.Attrs(b[unix.SizeofRtMsg:], func(typ uint16, value []byte) {
		switch typ {
		case unix.RTA_DST:
			dst = asAddr(value)
		case unix.RTA_GATEWAY:
			r.Gateway = asAddr(value)
		case unix.RTA_OIF:
			r.Index = int32(AsU32(value))
		}
	})
	r.Dst = netip.PrefixFrom(dst, int(b[1]))
	return r, r.Dst.IsValid()
}

// ParseProbes reads the part of a NEWNEIGHTBL about one link (struct ndtmsg,
// NDTA_PARMS). The tables' own parameters have no ifindex.
func ParseProbes(b []byte) (index int32, fam uint8, probes plan.Probes, ok bool) {
	if len(b) < SizeofNdtMsg {
		return 0, 0, plan.Probes{}, false
	}
	nlmsg.Attrs(b[SizeofNdtMsg:], func(typ uint16, value []byte) {
		if typ != ndtaParms {
			return
		}
		nlmsg.Attrs(value, func(typ uint16, value []byte) {
			switch typ {
			case ndtpaIfindex:
				index = int32(AsU32(value))
			case ndtpaAppProbes:
				probes.App = AsU32(value)
			case ndtpaMcastProbe:
				probes.Mcast = AsU32(value)
			}
		})
	})
	probes.Known = index != 0
	return index, b[0], probes, index != 0
}

// RawLink is one link of a dump or notification: its parent is an ifindex, whose name
// only the complete dump has.
type RawLink struct {
	plan.Link
	ParentIndex int32 // IFLA_LINK
	ParentNS    int32 // IFLA_LINK_NETNSID, or -1 if the parent is in the same namespace
	HasParent   bool
	Loopback    bool
	Running     bool // it sends: the kernel has seen its carrier
}
