// Package answers says what a node may tell a VM at its own port: who and where it is
// (DHCP), and which MAC has an address of its network (ARP, ND).
//
// It owns these two lookups, Of and Neighbour, and the choice of a host name (Hostname).
// What the kernel holds of the same NIC is left to package desired, which it asks, so that
// both agree. Packets are left to package agent/answer.
//
// The package is pure, and only reads the state.
package answers

import (
	"net/netip"
	"strings"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/desired"
)

// Guest is a VM's NIC on a fabric network, as its node may tell it.
type Guest struct {
	NIC     log.MAC
	VM      log.UUID
	Network log.UUID
	VNet    uint32
	VLAN    uint16 // 0: untagged
	// IP is the NIC's address with the prefix length of its network; not valid if it has
	// none.
	IP netip.Prefix
	// Gateway is the default route, if that of the VM leads through this NIC.
	Gateway netip.Addr
	// Resolvers are those of all networks of the VM, the primary NIC's first, of both
	// families.
	Resolvers []netip.Addr
	Routes    []desired.Route // of the network, less those that the VM needs none for
	MTU       uint32          // bytes
	// Hostname is the VM's alias, "" if it has none or if that is no host name.
	Hostname string
	// DHCP: the node answers DHCP requests of this NIC.
	DHCP bool
}

// Of returns what cn may tell one of its NICs, at a cost of the NICs of its VM. It is
// false where the NIC has no link there: desired.Of has no Fabric of it.
func Of(s *projections.State, cn log.UUID, nic log.MAC) (Guest, bool) {
	f, ok := desired.NewEntries(s, cn).Fabric(nic)
	if !ok {
		return Guest{}, false
	}
	r, _ := s.NICRow(nic)
	g := Guest{
		NIC: nic, VM: f.VM, Network: r.Network(), VNet: f.VNet, VLAN: f.VLAN,
		Gateway: f.Gateway, Resolvers: f.Resolvers, Routes: f.Routes, MTU: f.MTU,
	}
	if net := s.Network(g.Network); net != nil {
		g.DHCP = net.DHCP
	}
	if len(f.Addresses) > 0 {
		g.IP = f.Addresses[0]
	}
	if vm := s.VM(f.VM); vm != nil && vm.ServerUUID == cn {
		g.Hostname = Hostname(vm.Alias)
	}
	return g, true
}

// Neighbour returns the MAC of the NIC, other than the guest's own, that has an address on
// the guest's network: of a VM, a router or a gateway, on any node. An IPv6 link-local
// address is that of the NIC from whose MAC it follows (RFC 4291, appendix A). Other
// networks are not asked, even those of the same vnet.
func Neighbour(s *projections.State, guest Guest, ip netip.Addr) (log.MAC, bool) {
	if ip.Zone() != "" {
		return log.MAC{}, false
	}
	if mac, ok := fromLinkLocal(ip); ok {
		r, held := s.NICRow(mac)
		if !held || mac == guest.NIC || r.Network() != guest.Network {
			return log.MAC{}, false
		}
		return mac, true
	}
	r, ok := s.NICRowAt(guest.Network, ip)
	if !ok || r.MAC() == guest.NIC {
		return log.MAC{}, false
	}
	return r.MAC(), true
}

// fromLinkLocal returns the MAC from which a link-local address follows.
func fromLinkLocal(ip netip.Addr) (log.MAC, bool) {
	a := ip.As16()
	switch {
	case !ip.Is6() || ip.Is4In6() || [8]byte(a[:8]) != [8]byte{0xfe, 0x80}:
		return log.MAC{}, false
	case a[11] != 0xff || a[12] != 0xfe:
		return log.MAC{}, false
	}
	return log.MAC{a[8] ^ 2, a[9], a[10], a[13], a[14], a[15]}, true
}

const (
	// maxLabelBytes is of RFC 1035, section 2.3.4.
	maxLabelBytes = 63
	// maxHostnameBytes is what a Linux host name may have (HOST_NAME_MAX).
	maxHostnameBytes = 64
)

// Hostname returns a VM's alias where it is a host name (RFC 1123, section 2.1), else "".
// An alias may be any text, and scripts of guests put what DHCP says into shells.
func Hostname(alias string) string {
	if len(alias) > maxHostnameBytes {
		return ""
	}
	for label := range strings.SplitSeq(alias, ".") {
		if !isLabel(label) {
			return ""
		}
	}
	return alias
}

func isLabel(s string) bool {
	if s == "" || len(s) > maxLabelBytes || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-':
		default:
			return false
		}
	}
	return true
}
