package wire

import (
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/agent/link/plan"
)

// AppendMessage appends one message (struct nlmsghdr, linux/netlink.h). The length of
// the body must be a multiple of 4, as with all our messages. The kernel knows the
// sender from the socket.
func AppendMessage(b []byte, typ netlink.HeaderType, flags netlink.HeaderFlags, sequence uint32, body []byte) []byte {
	b = native.AppendUint32(b, uint32(unix.SizeofNlMsghdr+len(body)))
	b = native.AppendUint16(b, uint16(typ))
	b = native.AppendUint16(b, uint16(flags))
	b = native.AppendUint32(b, sequence)
	b = native.AppendUint32(b, 0)
	return append(b, body...)
}

// LinkHeader appends a struct ifinfomsg.
func (e *Encoder) LinkHeader(index int32, flags, change uint32) {
	e.U32(unix.AF_UNSPEC)
	e.U32(uint32(index))
	e.U32(flags)
	e.U32(change)
}

// VXLAN appends the body of the NEWLINK that makes a VXLAN device. The device is not up
// yet, so that the kernel does not add an IPv6 address first. It has its group from the
// beginning; the kernel takes its alias only later, with Set (spec/kernel.md section 2).
func (e *Encoder) VXLAN(l *plan.Link, index int32) {
	e.LinkHeader(index, 0, 0)
	e.AttrText(unix.IFLA_IFNAME, l.Name)
	e.Attr32(unix.IFLA_GROUP, l.Group)
	e.Attr32(unix.IFLA_MTU, l.MTU)
	e.Nest(unix.IFLA_LINKINFO, func() {
		e.AttrText(unix.IFLA_INFO_KIND, plan.KindVXLAN)
		e.Nest(unix.IFLA_INFO_DATA, func() {
			e.Attr32(unix.IFLA_VXLAN_ID, l.VNI)
			local := uint16(unix.IFLA_VXLAN_LOCAL)
			if l.Local.Is6() {
				local = unix.IFLA_VXLAN_LOCAL6
			}
			e.AttrAddr(local, l.Local)
			e.attrBE16(unix.IFLA_VXLAN_PORT, l.Port)
			e.attr8(unix.IFLA_VXLAN_LEARNING, bit(l.Learning))
			e.attr8(unix.IFLA_VXLAN_PROXY, bit(l.Proxy))
			e.attr8(unix.IFLA_VXLAN_L2MISS, bit(l.L2Miss))
			e.attr8(unix.IFLA_VXLAN_L3MISS, bit(l.L3Miss))
		})
	})
}

// VLAN appends the body of the NEWLINK that makes a VLAN device on parent.
func (e *Encoder) VLAN(l *plan.Link, index, parent int32) {
	e.LinkHeader(index, 0, 0)
	e.AttrText(unix.IFLA_IFNAME, l.Name)
	e.Attr32(unix.IFLA_GROUP, l.Group)
	e.Attr32(unix.IFLA_MTU, l.MTU)
	e.Attr32(unix.IFLA_LINK, uint32(parent))
	e.Nest(unix.IFLA_LINKINFO, func() {
		e.AttrText(unix.IFLA_INFO_KIND, plan.KindVLAN)
		e.Nest(unix.IFLA_INFO_DATA, func() {
			e.attr16(unix.IFLA_VLAN_ID, l.VLAN)
			e.attrBE16(unix.IFLA_VLAN_PROTOCOL, etherType8021Q)
		})
	})
}

// Macvlan appends the body of the NEWLINK that makes a fabric link on parent, up at
// once, in the namespace of the descriptor netns (our own if negative).
func (e *Encoder) Macvlan(l *plan.Link, index, parent int32, netns int) {
	e.LinkHeader(index, unix.IFF_UP, unix.IFF_UP)
	e.AttrText(unix.IFLA_IFNAME, l.NameToBe())
	e.Attr32(unix.IFLA_GROUP, l.Group)
	e.Attr32(unix.IFLA_MTU, l.MTU)
	e.attrMAC(unix.IFLA_ADDRESS, l.MAC)
	e.Attr32(unix.IFLA_LINK, uint32(parent))
	if netns >= 0 {
		e.Attr32(unix.IFLA_NET_NS_FD, uint32(netns))
	}
	e.Nest(unix.IFLA_LINKINFO, func() {
		e.AttrText(unix.IFLA_INFO_KIND, plan.KindMacvlan)
		e.Nest(unix.IFLA_INFO_DATA, func() { e.Attr32(unix.IFLA_MACVLAN_MODE, macvlanModeBridge) })
	})
}

// Bridge appends the body of the NEWLINK that makes a bridge, which is not up yet.
func (e *Encoder) Bridge(l *plan.Link, index int32) {
	e.LinkHeader(index, 0, 0)
	e.AttrText(unix.IFLA_IFNAME, l.Name)
	e.Attr32(unix.IFLA_GROUP, l.Group)
	e.Attr32(unix.IFLA_MTU, l.MTU)
	e.bridgeInfo(l)
}

func (e *Encoder) bridgeInfo(l *plan.Link) {
	e.Nest(unix.IFLA_LINKINFO, func() {
		e.AttrText(unix.IFLA_INFO_KIND, plan.KindBridge)
		e.Nest(unix.IFLA_INFO_DATA, func() {
			e.Attr32(brStpState, uint32(bit(l.STP)))
			e.attr8(brMcastSnooping, bit(l.Snooping))
		})
	})
}

// Pair appends the body of the NEWLINK that makes a veth pair: the VM's end l, in the
// namespace of the descriptor netns (our own if negative), and the node's end, l.Peer, a
// port of the bridge with ifindex master. Both are down: the kernel puts no end up before
// it has the other (ENOTCONN of veth_open). It takes the ifindex of
// one end only if that of the other is given too.
func (e *Encoder) Pair(l *plan.Link, index, peer, master int32, netns int) {
	e.LinkHeader(peer, 0, 0)
	e.AttrText(unix.IFLA_IFNAME, l.Peer.Name)
	e.Attr32(unix.IFLA_GROUP, l.Peer.Group)
	e.Attr32(unix.IFLA_MTU, l.Peer.MTU)
	e.Attr32(unix.IFLA_MASTER, uint32(master))
	e.Nest(unix.IFLA_LINKINFO, func() {
		e.AttrText(unix.IFLA_INFO_KIND, plan.KindVeth)
		e.Nest(unix.IFLA_INFO_DATA, func() {
			e.Nest(vethInfoPeer, func() {
				e.LinkHeader(index, 0, 0)
				e.AttrText(unix.IFLA_IFNAME, l.NameToBe())
				e.Attr32(unix.IFLA_GROUP, l.Group)
				e.Attr32(unix.IFLA_MTU, l.MTU)
				e.attrMAC(unix.IFLA_ADDRESS, l.MAC)
				if netns >= 0 {
					e.Attr32(unix.IFLA_NET_NS_FD, uint32(netns))
				}
			})
		})
	})
}

// Master appends the body of the message that makes a link the port of a bridge. The flags
// of the port follow, in another message.
func (e *Encoder) Master(index, bridge int32) {
	e.LinkHeader(index, 0, 0)
	e.Attr32(unix.IFLA_MASTER, uint32(bridge))
}

// PortFlags appends the body of the message that sets the flags of a bridge port, and
// makes the bridge forget what it has learned there.
func (e *Encoder) PortFlags(f plan.PortFlags, index int32) {
	e.LinkHeader(index, 0, 0)
	e.Nest(unix.IFLA_LINKINFO, func() {
		e.AttrText(unix.IFLA_INFO_SLAVE_KIND, plan.KindBridge)
		e.Nest(unix.IFLA_INFO_SLAVE_DATA, func() {
			e.attr8(brportLearning, bit(f.Learning))
			e.attr8(brportUnicastFlood, bit(f.Flood))
			e.attr8(brportMcastFlood, bit(f.Multicast))
			e.attr8(brportBcastFlood, bit(f.Broadcast))
			e.attr(brportFlush, nil)
		})
	})
}

// NamespaceID appends the body of the NEWNSID that gives a namespace an id in ours.
// Without an id, Watch receives nothing from there (linux/net_namespace.h).
func (e *Encoder) NamespaceID(netns int) {
	const anyID = 1<<32 - 1 // -1: the kernel chooses
	e.U32(unix.AF_UNSPEC)
	e.Attr32(NetnsaFD, uint32(netns))
	e.Attr32(NetnsaNSID, anyID)
}

// Quiet appends the body of the message that prevents the kernel's own IPv6 addresses
// on a link. The kernel refuses this in the message that makes the link (spec/kernel.md
// section 2), so it follows, before the link is up.
func (e *Encoder) Quiet(index int32) {
	e.LinkHeader(index, 0, 0)
	e.Nest(unix.IFLA_AF_SPEC, func() {
		e.Nest(unix.AF_INET6, func() { e.attr8(unix.IFLA_INET6_ADDR_GEN_MODE, inet6AddrGenModeNone) })
	})
}

// Set appends the body of the message that changes a link in place.
func (e *Encoder) Set(l *plan.Link, index int32, change plan.Change) {
	var up, touched uint32
	if change&plan.ChangeUp != 0 {
		up, touched = unix.IFF_UP, unix.IFF_UP
	}
	if change&plan.ChangeDown != 0 {
		up, touched = 0, unix.IFF_UP
	}
	e.LinkHeader(index, up, touched)
	if change&plan.ChangeBridge != 0 {
		e.bridgeInfo(l)
	}
	if change&plan.ChangeMTU != 0 {
		e.Attr32(unix.IFLA_MTU, l.MTU)
	}
	if change&plan.ChangeMAC != 0 {
		e.attrMAC(unix.IFLA_ADDRESS, l.MAC)
	}
	if change&plan.ChangeName != 0 {
		e.AttrText(unix.IFLA_IFNAME, l.NameToBe())
	}
	if change&plan.ChangeMark != 0 {
		e.AttrText(unix.IFLA_IFALIAS, l.Alias)
		e.Attr32(unix.IFLA_GROUP, l.Group)
	}
}

// Probes appends the body of a SETNEIGHTBL (struct ndtmsg, linux/neighbour.h).
func (e *Encoder) Probes(s plan.Step, index int32) {
	e.U32(uint32(family(s.Addr)))
	e.AttrText(ndtaName, s.Table())
	e.Nest(ndtaParms, func() {
		e.Attr32(ndtpaIfindex, uint32(index))
		e.Attr32(ndtpaAppProbes, s.Probes().App)
		e.Attr32(ndtpaMcastProbe, s.Probes().Mcast)
	})
}

// Address appends the body of a NEWADDR or DELADDR (struct ifaddrmsg). IPv6 addresses
// are valid at once, because the log has excluded duplicates (IFA_F_NODAD).
func (e *Encoder) Address(s plan.Step, index int32) {
	a := s.Prefix.Addr()
	var flags uint8
	if a.Is6() {
		flags = unix.IFA_F_NODAD
	}
	e.B = append(e.B, family(a), uint8(s.Prefix.Bits()), flags, unix.RT_SCOPE_UNIVERSE)
	e.U32(uint32(index))
	e.AttrAddr(unix.IFA_LOCAL, a)
	e.AttrAddr(unix.IFA_ADDRESS, a)
}

// Route appends the body of a NEWROUTE or DELROUTE (struct rtmsg).
func (e *Encoder) Route(s plan.Step, index int32) {
	dst := s.Prefix.Addr()
	e.B = append(e.B, family(dst), uint8(s.Prefix.Bits()), 0, 0,
		unix.RT_TABLE_MAIN, plan.RouteProtocol, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST)
	var flags uint32
	if s.Onlink {
		flags = unix.RTNH_F_ONLINK
	}
	e.U32(flags)
	if s.Prefix.Bits() > 0 {
		e.AttrAddr(unix.RTA_DST, dst)
	}
	if s.Op == plan.OpSetRoute {
		e.AttrAddr(unix.RTA_GATEWAY, s.Addr)
	}
	e.Attr32(unix.RTA_OIF, uint32(index))
	n, _ := plan.FabricNumber(s.Link)
	e.Attr32(unix.RTA_PRIORITY, plan.RouteMetric+n)
}

// Neigh appends the body of a NEWNEIGH or DELNEIGH (struct ndmsg).
func (e *Encoder) Neigh(s plan.Step, index int32) {
	e.U32(uint32(family(s.Addr)))
	e.U32(uint32(index))
	e.u16(unix.NUD_PERMANENT)
	e.u16(0)
	e.AttrAddr(unix.NDA_DST, s.Addr)
	if s.Op == plan.OpSetNeigh {
		e.attrMAC(unix.NDA_LLADDR, s.MAC)
	}
}

// Forward appends the body of a NEWNEIGH or DELNEIGH for a VXLAN device.
func (e *Encoder) Forward(s plan.Step, index int32) {
	e.U32(unix.AF_BRIDGE)
	e.U32(uint32(index))
	e.u16(unix.NUD_PERMANENT | unix.NUD_NOARP)
	e.u8(unix.NTF_SELF)
	e.u8(0)
	e.attrMAC(unix.NDA_LLADDR, s.MAC)
	if s.Op != plan.OpDelFDB { // those for all are deleted one by one
		e.AttrAddr(unix.NDA_DST, s.Addr)
		if s.Port != 0 {
			e.attrBE16(unix.NDA_PORT, s.Port)
		}
	}
}

// Static appends the body of a NEWNEIGH or DELNEIGH for a bridge's entry of a port. The
// entry does not age, and no other port can take it over.
func (e *Encoder) Static(s plan.Step, port int32) {
	flags := uint8(unix.NTF_MASTER)
	if s.Op == plan.OpSetStatic {
		flags |= ntfSticky
	}
	e.U32(unix.AF_BRIDGE)
	e.U32(uint32(port))
	e.u16(unix.NUD_NOARP)
	e.u8(flags)
	e.u8(0)
	e.attrMAC(unix.NDA_LLADDR, s.MAC)
}

// ReadEntry appends the body of a GETNEIGH for one entry. Strict checking requires all
// of the header, except the family and the ifindex, to be zero (neigh_valid_get_req,
// linux net/core/neighbour.c).
func (e *Encoder) ReadEntry(entry plan.Entry, index int32) {
	fam := uint8(unix.AF_BRIDGE)
	if entry.IP.IsValid() {
		fam = family(entry.IP)
	}
	e.U32(uint32(fam))
	e.U32(uint32(index))
	if entry.IP.IsValid() {
		e.U32(0)
		e.AttrAddr(unix.NDA_DST, entry.IP)
		return
	}
	e.u16(0)
	e.u8(unix.NTF_SELF)
	e.u8(0)
	e.attrMAC(unix.NDA_LLADDR, entry.MAC)
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
