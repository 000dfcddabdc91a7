package link

import (
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// request is one message of a step: its header's type and flags, and where its
// body lies in the batch's buffer.
type request struct {
	typ        netlink.HeaderType
	flags      netlink.HeaderFlags
	start, end int
	step       int   // index of the step
	index      int32 // the ifindex of its link, 0 if the message is not on one
	// optional: the kernel may lack what this asks for (IPv6 switched off), or
	// have it already.
	optional bool
}

const (
	flagsCreate  = netlink.Create | netlink.Excl
	flagsReplace = netlink.Create | netlink.Replace
)

// appendMessage appends one message (struct nlmsghdr, linux/netlink.h), whose
// body has a length that is a multiple of 4, as all of ours have. The kernel
// knows by the socket who sends.
func appendMessage(b []byte, typ netlink.HeaderType, flags netlink.HeaderFlags, sequence uint32, body []byte) []byte {
	b = native.AppendUint32(b, uint32(unix.SizeofNlMsghdr+len(body)))
	b = native.AppendUint16(b, uint16(typ))
	b = native.AppendUint16(b, uint16(flags))
	b = native.AppendUint32(b, sequence)
	b = native.AppendUint32(b, 0)
	return append(b, body...)
}

// linkHeader appends a struct ifinfomsg.
func (e *encoder) linkHeader(index int32, flags, change uint32) {
	e.u32(unix.AF_UNSPEC)
	e.u32(uint32(index))
	e.u32(flags)
	e.u32(change)
}

// vxlan appends the body of the NEWLINK that makes a VXLAN device. It is not set
// up yet, so that the kernel gives it no IPv6 address first.
func (e *encoder) vxlan(l *Link, index int32) {
	e.linkHeader(index, 0, 0)
	e.attrText(unix.IFLA_IFNAME, l.Name)
	e.attr32(unix.IFLA_MTU, l.MTU)
	e.nest(unix.IFLA_LINKINFO, func() {
		e.attrText(unix.IFLA_INFO_KIND, kindVXLAN)
		e.nest(unix.IFLA_INFO_DATA, func() {
			e.attr32(unix.IFLA_VXLAN_ID, l.VNI)
			local := uint16(unix.IFLA_VXLAN_LOCAL)
			if l.Local.Is6() {
				local = unix.IFLA_VXLAN_LOCAL6
			}
			e.attrAddr(local, l.Local)
			e.attrBE16(unix.IFLA_VXLAN_PORT, l.Port)
			e.attr8(unix.IFLA_VXLAN_LEARNING, bit(l.Learning))
			e.attr8(unix.IFLA_VXLAN_PROXY, bit(l.Proxy))
			e.attr8(unix.IFLA_VXLAN_L2MISS, bit(l.L2Miss))
			e.attr8(unix.IFLA_VXLAN_L3MISS, bit(l.L3Miss))
		})
	})
}

// vlan appends the body of the NEWLINK that makes a VLAN device on parent.
func (e *encoder) vlan(l *Link, index, parent int32) {
	e.linkHeader(index, 0, 0)
	e.attrText(unix.IFLA_IFNAME, l.Name)
	e.attr32(unix.IFLA_MTU, l.MTU)
	e.attr32(unix.IFLA_LINK, uint32(parent))
	e.nest(unix.IFLA_LINKINFO, func() {
		e.attrText(unix.IFLA_INFO_KIND, kindVLAN)
		e.nest(unix.IFLA_INFO_DATA, func() {
			e.attr16(unix.IFLA_VLAN_ID, l.VLAN)
			e.attrBE16(unix.IFLA_VLAN_PROTOCOL, etherType8021Q)
		})
	})
}

// macvlan appends the body of the NEWLINK that makes a fabric link on parent, up
// at once, in the namespace of the descriptor netns (our own if negative).
func (e *encoder) macvlan(l *Link, index, parent int32, netns int) {
	e.linkHeader(index, unix.IFF_UP, unix.IFF_UP)
	e.attrText(unix.IFLA_IFNAME, l.Name)
	e.attr32(unix.IFLA_MTU, l.MTU)
	e.attrMAC(unix.IFLA_ADDRESS, l.MAC)
	e.attr32(unix.IFLA_LINK, uint32(parent))
	if netns >= 0 {
		e.attr32(unix.IFLA_NET_NS_FD, uint32(netns))
	}
	e.nest(unix.IFLA_LINKINFO, func() {
		e.attrText(unix.IFLA_INFO_KIND, kindMacvlan)
		e.nest(unix.IFLA_INFO_DATA, func() { e.attr32(unix.IFLA_MACVLAN_MODE, macvlanModeBridge) })
	})
}

// namespaceID appends the body of the NEWNSID that gives a namespace an id in
// ours, without which Watch hears nothing from there (linux/net_namespace.h).
func (e *encoder) namespaceID(netns int) {
	const anyID = 1<<32 - 1 // -1: the kernel chooses
	e.u32(unix.AF_UNSPEC)
	e.attr32(netnsaFD, uint32(netns))
	e.attr32(netnsaNSID, anyID)
}

// quiet appends the body of the message that keeps a link free of IPv6 addresses
// of the kernel's own. The kernel refuses this in the message that makes the
// link (spec/kernel.md section 2), so it comes after, and before the link is up.
func (e *encoder) quiet(index int32) {
	e.linkHeader(index, 0, 0)
	e.nest(unix.IFLA_AF_SPEC, func() {
		e.nest(unix.AF_INET6, func() { e.attr8(unix.IFLA_INET6_ADDR_GEN_MODE, inet6AddrGenModeNone) })
	})
}

// set appends the body of the message that changes a link in place.
func (e *encoder) set(l *Link, index int32, change Change) {
	var up uint32
	if change&ChangeUp != 0 {
		up = unix.IFF_UP
	}
	e.linkHeader(index, up, up)
	if change&ChangeMTU != 0 {
		e.attr32(unix.IFLA_MTU, l.MTU)
	}
	if change&ChangeMAC != 0 {
		e.attrMAC(unix.IFLA_ADDRESS, l.MAC)
	}
}

// probes appends the body of a SETNEIGHTBL (struct ndtmsg, linux/neighbour.h).
func (e *encoder) probes(s Step, index int32) {
	e.u32(uint32(family(s.Addr)))
	e.attrText(ndtaName, s.table())
	e.nest(ndtaParms, func() {
		e.attr32(ndtpaIfindex, uint32(index))
		e.attr32(ndtpaAppProbes, wantProbes.App)
		e.attr32(ndtpaMcastProbe, wantProbes.Mcast)
	})
}

// address appends the body of a NEWADDR or DELADDR (struct ifaddrmsg). IPv6
// addresses are valid at once: the log has found no duplicate (IFA_F_NODAD).
func (e *encoder) address(s Step, index int32) {
	a := s.Prefix.Addr()
	var flags uint8
	if a.Is6() {
		flags = unix.IFA_F_NODAD
	}
	e.b = append(e.b, family(a), uint8(s.Prefix.Bits()), flags, unix.RT_SCOPE_UNIVERSE)
	e.u32(uint32(index))
	e.attrAddr(unix.IFA_LOCAL, a)
	e.attrAddr(unix.IFA_ADDRESS, a)
}

// route appends the body of a NEWROUTE or DELROUTE (struct rtmsg).
func (e *encoder) route(s Step, index int32) {
	dst := s.Prefix.Addr()
	e.b = append(e.b, family(dst), uint8(s.Prefix.Bits()), 0, 0,
		unix.RT_TABLE_MAIN, RouteProtocol, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST)
	var flags uint32
	if s.Onlink {
		flags = unix.RTNH_F_ONLINK
	}
	e.u32(flags)
	if s.Prefix.Bits() > 0 {
		e.attrAddr(unix.RTA_DST, dst)
	}
	if s.Op == OpSetRoute {
		e.attrAddr(unix.RTA_GATEWAY, s.Addr)
	}
	e.attr32(unix.RTA_OIF, uint32(index))
	n, _ := fabricNumber(s.Link)
	e.attr32(unix.RTA_PRIORITY, routeMetric+n)
}

// neigh appends the body of a NEWNEIGH or DELNEIGH (struct ndmsg).
func (e *encoder) neigh(s Step, index int32) {
	e.u32(uint32(family(s.Addr)))
	e.u32(uint32(index))
	e.u16(unix.NUD_PERMANENT)
	e.u16(0)
	e.attrAddr(unix.NDA_DST, s.Addr)
	if s.Op == OpSetNeigh {
		e.attrMAC(unix.NDA_LLADDR, s.MAC)
	}
}

// forward appends the body of a NEWNEIGH or DELNEIGH for a VXLAN device.
func (e *encoder) forward(s Step, index int32) {
	e.u32(unix.AF_BRIDGE)
	e.u32(uint32(index))
	e.u16(unix.NUD_PERMANENT | unix.NUD_NOARP)
	e.u8(unix.NTF_SELF)
	e.u8(0)
	e.attrMAC(unix.NDA_LLADDR, s.MAC)
	if s.Op == OpSetFDB {
		e.attrAddr(unix.NDA_DST, s.Addr)
		if s.Port != 0 {
			e.attrBE16(unix.NDA_PORT, s.Port)
		}
	}
}

// readEntry appends the body of a GETNEIGH for one entry. Strict checking wants
// all of the header but the family and the ifindex zero (neigh_valid_get_req,
// linux net/core/neighbour.c).
func (e *encoder) readEntry(entry Entry, index int32) {
	fam := uint8(unix.AF_BRIDGE)
	if entry.IP.IsValid() {
		fam = family(entry.IP)
	}
	e.u32(uint32(fam))
	e.u32(uint32(index))
	if entry.IP.IsValid() {
		e.u32(0)
		e.attrAddr(unix.NDA_DST, entry.IP)
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
