package varp

import (
	"iter"
	"net/netip"

	"rutter/log"
)

// Source is what Shootdowns and Mappings read: the change log and the state that this node
// has made of it. On a server that is the store, on an agent its cache. Its
// methods are called from many goroutines, and never from within View.
type Source interface {
	// Head says which log this is, and how far this node has applied it.
	Head() log.Cursor
	// Entries returns what follows after, in order, at most about limit
	// entries; none means that after is the head. What it returns has been
	// applied to what View and the Server's Lookup show: only so is the answer
	// to a lookup after a shootdown never the old one. An agent may leave out
	// entries that do not concern it. log.ErrCompacted: they are not kept.
	Entries(after log.Seq, limit int) ([]log.Entry, error)
	// View calls fn with the state, which does not change meanwhile. fn is
	// short and keeps nothing of it.
	View(fn func(Rows))
}

// Rows is the part of the state that shootdowns follow from.
type Rows interface {
	Lookup
	// Nodes returns the compute nodes that have this underlay address; it is
	// one, or none if nobody has it.
	Nodes(underlay netip.Addr) []log.UUID
	// VNets returns the vnets that a node has NICs on.
	VNets(node log.UUID) []uint32
	// NICs yields the NICs on a vnet by rising MAC.
	NICs(vnet uint32) iter.Seq[NICRow]
	// NICsOn yields the NICs on vnets that a node has, in a fixed order.
	NICsOn(node log.UUID) iter.Seq[NICRow]
	// VNetOf returns the vnet and VLAN of a network; false if it is not known,
	// or is on no vnet.
	VNetOf(network log.UUID) (vnet uint32, vlan uint16, ok bool)
	// Networks yields the networks that are on vnets, with their vnets.
	Networks() iter.Seq2[log.UUID, uint32]
	// AllNICs yields every NIC, in any order; nobody changes them.
	AllNICs() iter.Seq[*log.NIC]
}

// NICRow is a NIC on a vnet.
type NICRow struct {
	VNet uint32
	VLAN uint16
	MAC  log.MAC
	IP   netip.Addr // the zero Addr if it has none
	Seq  log.Seq    // of the NIC's last event
}
