package filter

import (
	"context"
	"errors"
	"net/netip"

	"rutter/log"
)

// ErrUnsupported means that the kernel has no nf_tables, or lacks a part of it that the
// rules need. The error that wraps it names the part.
var ErrUnsupported = errors.New("filter: the kernel cannot hold the rules of port security")

// Port is what the frames may be that come out of one VM's link, at its host end. It is
// known by Index, the ifindex of the host end: a link that is made again under the same
// name is another port.
type Port struct {
	Index uint32
	Name  string // of the host end in the node's namespace
	MAC   log.MAC
	// Addresses are the source addresses that IPv4, IPv6, ARP and ND may have. The link-local
	// address that follows from MAC, and the unspecified address where its protocol needs it
	// (DHCP, DAD, ARP probes), are allowed too. They are sorted.
	Addresses []netip.Addr

	AnyMAC     bool // any source MAC
	AnyIP      bool // any source address, in ARP and ND too
	DHCPServer bool // answers of a DHCP server (v4, v6), and router advertisements
	AnyTraffic bool // other protocols than IPv4, IPv6 and ARP
}

// Segment is the bridge that joins ports. What reaches the bridge device itself is dropped
// before the node's own network stack; packet sockets on the device see it.
type Segment struct {
	Index uint32
	Name  string
}

// Peer is a node whose VXLAN packets of one vnet are taken.
type Peer struct {
	VTEP netip.Addr
	VNI  uint32
}

// Underlay is where VXLAN packets are taken at all. Packets to the ports that come by
// another interface, or from others than the Peers, are dropped. The zero Underlay filters
// nothing. The slices are sorted.
type Underlay struct {
	Ports      []uint16 // UDP destination ports of this node's VXLAN devices
	Interfaces []string // by name
}

// State is what the table in the kernel holds. The slices are sorted: Ports and Segments by
// Index, Peers by (VNI, VTEP).
type State struct {
	Ports    []Port
	Segments []Segment
	Peers    []Peer
	Underlay Underlay
}

// Change is one change of the table: one of the fields is set. Setting what is there
// replaces it, and deleting what is not there succeeds.
type Change struct {
	SetPort     *Port
	DelPort     uint32 // the Index
	SetSegment  *Segment
	DelSegment  uint32 // the Index
	AddPeer     *Peer
	DelPeer     *Peer
	SetUnderlay *Underlay
}

// Table is the table in a kernel. It is safe for one goroutine at a time, except for
// Counters, which may run beside the others.
type Table interface {
	// Read returns what the table holds. It costs a dump only if another program changed
	// nf_tables since the last Read or Apply.
	Read(ctx context.Context) (State, error)
	// Apply makes changes in their order, all in one transaction if the kernel accepts it.
	// Else each change that it refuses has its error at the same place in errs, and the
	// others are made. errs is nil if all are made.
	Apply(ctx context.Context, changes []Change) (errs []error)
	// Counters returns what was dropped since the table was made.
	Counters(ctx context.Context) (Counters, error)
	Close() error
}

// Reason says why a frame or packet was dropped.
type Reason string

// The reasons. They are the values of the label reason in metrics.
const (
	ReasonMAC        Reason = "mac"       // source MAC that is not the port's, in the frame or inside ARP or ND
	ReasonIP         Reason = "ip"        // source address that is not the port's
	ReasonARP        Reason = "arp"       // sender address in ARP that is not the port's
	ReasonND         Reason = "nd"        // source or target of ND that is not the port's
	ReasonDHCPServer Reason = "dhcp"      // answer of a DHCP server
	ReasonRouter     Reason = "router"    // router advertisement or redirect
	ReasonProtocol   Reason = "protocol"  // not IPv4, IPv6 or ARP
	ReasonRate       Reason = "rate"      // more requests to the node's answerer than a port may make
	ReasonPeer       Reason = "peer"      // VXLAN packet of a sender that is no peer of its vnet
	ReasonInterface  Reason = "interface" // VXLAN packet by another interface than the underlay's
)

// Count is how much was dropped.
type Count struct{ Packets, Bytes uint64 }

// Counters are all drops since the table was made.
type Counters struct {
	Ports    map[uint32]map[Reason]Count // by Index
	Segments map[uint32]Count            // by Index: what was for the node's own stack
	Underlay map[Reason]Count
}
