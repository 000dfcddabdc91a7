package varp

import (
	"fmt"
	"iter"
	"net/netip"

	"rutter/log"
)

// State is a node's state of the change log. Its methods are called from many
// goroutines, and never from within View.
type State interface {
	// Head returns which log this is, and how far this node has applied it.
	Head() log.Cursor
	// View calls fn with the state, which does not change during the call. fn must be
	// short and must not keep the state.
	View(fn func(Rows))
}

// Source is what Shootdowns and Mappings read on a server: the state and the change log
// itself.
type Source interface {
	State
	// Entries returns the entries after a seq, in order, at most about limit of them;
	// none means that after is the head. What it returns has been applied to what View
	// and the Server's Lookup show: so a lookup after a shootdown never gets the old
	// answer. log.ErrCompacted: the entries are not kept.
	Entries(after log.Seq, limit int) ([]log.Entry, error)
}

// ChangeSource is what Shootdowns reads on an agent. What an agent holds changes by
// more than entries: scopes come and go, a reset compares everything. So it reports the
// changes of the NICs that it holds, and numbers these changes itself. Head is the
// number of the last one, with a cluster id that stays the same. Each number is higher
// than the Seq of any NICRow.
type ChangeSource interface {
	State
	// Changes returns the changes after a number, in order, at most limit of them; none
	// means that there are no more. View and the Server's Lookup already show them. gap
	// means that some changes in between are not kept any more: a caller that then
	// reads all rows, and these changes, misses nothing.
	Changes(after log.Seq, limit int) (changes []Change, gap bool)
}

// Change is a change of a NIC from Was to Is.
type Change struct {
	Seq     log.Seq
	Was, Is Place // the zero Place means that there is no NIC
}

// Place is the part of a NIC that lookups depend on.
type Place struct {
	MAC    log.MAC
	IP     netip.Addr // the zero Addr if it has none
	Node   log.UUID
	VNet   uint32
	VLAN   uint16
	OnVNet bool // VNet and VLAN are valid
	// OfServer: it is a compute node's own NIC. Underlay: it also carries VXLAN.
	OfServer, Underlay bool
}

// Rows is the part of the state from which shootdowns follow.
type Rows interface {
	Lookup
	// Nodes returns the compute nodes that have this underlay address: one or none.
	Nodes(underlay netip.Addr) []log.UUID
	// VNets returns the vnets on which a node has NICs.
	VNets(node log.UUID) []uint32
	// NICs yields the NICs on a vnet with a MAC above after, by rising MAC.
	NICs(vnet uint32, after log.MAC) iter.Seq[NICRow]
	// NICsOn yields a node's NICs on vnets, in a fixed order.
	NICsOn(node log.UUID) iter.Seq[NICRow]
	// VNetOf returns the vnet and VLAN of a network; false if it is unknown, or is on
	// no vnet.
	VNetOf(network log.UUID) (vnet uint32, vlan uint16, ok bool)
	// Networks yields the networks that are on vnets, with their vnets.
	Networks() iter.Seq2[log.UUID, uint32]
	// AllNICs yields every NIC with a MAC above after, by rising MAC; callers must not
	// change them.
	AllNICs(after log.MAC) iter.Seq[*log.NIC]
}

// NICRow is a NIC on a vnet.
type NICRow struct {
	VNet uint32
	VLAN uint16
	MAC  log.MAC
	IP   netip.Addr // the zero Addr if it has none
	Seq  log.Seq    // of the NIC's last event
}

// entryBatch is how many entries are read and noted at a time: it bounds how long the
// state is locked.
const entryBatch = 1024

// hasEntry returns log.ErrOtherLog if a source's log has another chain at a seq: a
// server that was rebuilt has other entries under the same seqs. It is called after a
// read, so that what was read is of the log of that position.
func hasEntry(source Source, seq log.Seq, chain log.ChainPrefix) error {
	if seq == 0 {
		return nil
	}
	entries, err := source.Entries(seq-1, 1)
	if err != nil {
		return err
	}
	if len(entries) == 0 || entries[0].Seq != seq || entries[0].Hash.Prefix() != chain {
		return fmt.Errorf("seq %d with chain %s: %w", seq, chain, log.ErrOtherLog)
	}
	return nil
}
