// Package desired says what the kernel of a compute node (CN) must hold, by a state.
//
// It owns the desired links of a CN (Of), what events changed of them (Touches, Part),
// which of them are found only when they are asked for (Limits, Entries), the
// difference of two of them, and the answer to why one VM can, or cannot, reach
// another (Trace). Programming them is left to package agent/link.
//
// The package is pure, and only reads the state. It asks it by the exported lookups
// alone.
package desired

import (
	"net/netip"

	"rutter/log"
)

// Links is everything that a compute node's kernel must hold, computed from
// the state alone. All slices are sorted by their key, so two equal states give
// two deeply equal values.
type Links struct {
	VXLANs  []VXLAN
	VLANs   []VLAN
	Fabrics []Fabric
	Neighs  []Neigh
	FDB     []FDB
	// Problems are objects that cannot be programmed as the log has them (no
	// underlay address, a fabric without a vnet). They are reported, and do
	// not keep the rest from being programmed.
	Problems []Problem
}

// Problem says why one object cannot be programmed.
type Problem struct {
	Kind   log.Kind
	ID     string
	Reason string
}

// VXLAN is one sdcvxl<vnet> device. Key: VNet.
type VXLAN struct {
	VNet  uint32
	Local netip.Addr // this CN's underlay address, IPv4 or IPv6
	Port  uint16     // UDP destination port: 4789 (IANA), spec/kernel.md
	MTU   uint32     // underlay MTU less the outer headers (50 over IPv4, 70 over IPv6)
	// OnDemand: the vnet has more entries than are programmed ahead. None of
	// its Neighs and FDB are listed; Entries finds each when it is asked for.
	OnDemand bool
}

// VLAN is one vx<vnet>v<vlan> device on sdcvxl<vnet>. Key: (VNet, ID). There is
// none for VLAN 0: an untagged fabric's macvlan sits on the VXLAN device.
type VLAN struct {
	VNet uint32
	ID   uint16 // 1 to 4094
	MTU  uint32 // 4 less than the VXLAN's: the tag must fit, spec/kernel.md section 2
}

// Fabric is one fabric<N> macvlan in bridge mode, one for each NIC of this CN
// that is on a fabric. Key: MAC (unique on a vnet, and across the log). The
// number N is chosen and kept by the agent.
type Fabric struct {
	MAC       log.MAC
	VNet      uint32
	VLAN      uint16 // 0: untagged
	MTU       uint32 // the network's, never above what the stack below carries
	VM        log.UUID
	Namespace string // network namespace by name (ip-netns(8)); "" is the agent's own
	Addresses []netip.Prefix
	Gateway   netip.Addr // default route, if valid
	Routes    []Route
	// Resolvers is the union over the VM's NICs in NIC order; written to
	// /etc/netns/<Namespace>/resolv.conf.
	Resolvers []netip.Addr
	// Hold is set while the VM is provisioning: the link is made, but the
	// network's later changes (gateway, routes, resolvers, MTU) are not applied.
	Hold bool
	// Idle is set while the VM is not to run: its namespace need not exist.
	Idle bool
}

// Route is one static route of a network, as it stands inside a VM.
type Route struct {
	Dst     netip.Prefix
	Gateway netip.Addr
}

// Neigh maps an overlay address to a MAC on the fabric link of one of this CN's
// NICs, in whichever namespace that link lives. Key: (Link, IP).
type Neigh struct {
	Link log.MAC // the Fabric whose link carries the entry
	IP   netip.Addr
	MAC  log.MAC
}

// FDB maps a MAC to the underlay address of its CN on sdcvxl<VNet>.
// Key: (VNet, MAC): the kernel's key has no VLAN.
type FDB struct {
	VNet uint32
	MAC  log.MAC
	Dst  netip.Addr
	Port uint16 // 0 or the VXLAN's own port: no port attribute is written
}
