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
	// Segments are the bridges that join the links of VMs, with port security.
	Segments []Segment
	// Peers are the other nodes of the vnets that are on demand. Those of the other vnets
	// are the destinations in FDB.
	Peers []Peer
	// Problems are objects that cannot be programmed as the log has them (no
	// underlay address, a fabric without a vnet). They are reported, and do
	// not keep the rest from being programmed.
	Problems []Problem
}

// MaxFlood is the most other nodes of a vnet to which a frame for all is copied: each copy
// costs the sender's link as much as the frame. A vnet with more has no broadcast on any
// node, and its networks that ask for it are Problems.
const MaxFlood = 128

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
	// Flood: a network of the node's links on it asks for broadcast, so that frames for all
	// go to each peer, of which there are at most MaxFlood.
	Flood bool
}

// Segment is what the links of one VLAN of one vnet have in common on a node: one bridge,
// where port security is on. Key: (VNet, VLAN).
type Segment struct {
	VNet uint32
	VLAN uint16 // 0: untagged
	MTU  uint32 // of the device below
	// Broadcast: a network of the node's links on it asks for broadcast and multicast
	// between its VMs. It is off where the vnet has more than MaxFlood other nodes.
	Broadcast bool
}

// Peer is a node that sends and receives VXLAN packets of a vnet. Key: (VNet, Addr).
type Peer struct {
	VNet uint32
	Addr netip.Addr // underlay address
}

// Security is what the frames that leave a VM through one of its links may be, beside
// those with the NIC's MAC and addresses. The fields are what the NIC says in the log.
type Security struct {
	AnyMAC     bool // allow_mac_spoofing
	AnyIP      bool // allow_ip_spoofing
	DHCPServer bool // allow_dhcp_spoofing: answers of a DHCP server, and router advertisements
	AnyTraffic bool // allow_restricted_traffic: others than IPv4, IPv6 and ARP
	// Promiscuous (allow_unfiltered_promisc): it gets frames for MACs that no other NIC
	// of the node has, so that it may have several.
	Promiscuous bool
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
	Namespace string // network namespace by name (ip-netns(8)); "" is the agent's own, also that of a tap
	Addresses []netip.Prefix
	// Allowed are further addresses from which the VM may send, beside Addresses: at most
	// log.MaxAllowedIPs, sorted. The VM itself configures those that it uses.
	Allowed []netip.Addr
	Gateway netip.Addr // default route, if valid
	Routes  []Route
	// Resolvers is the union over the VM's NICs in NIC order; written to
	// /etc/netns/<Namespace>/resolv.conf.
	Resolvers []netip.Addr
	// Security is what the link's frames may be.
	Security Security
	// Hold is set while the VM is provisioning: the link is made, but the
	// network's later changes (gateway, routes, resolvers, MTU) are not applied.
	Hold bool
	// Idle is set while the VM is not to run: its namespace need not exist.
	Idle bool
	// Attach says where the link ends. Of leaves it zero: see Links.Attach.
	Attach Attach
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
