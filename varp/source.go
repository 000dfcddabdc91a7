package varp

import (
	"fmt"
	"iter"
	"net/netip"

	"rutter/log"
)

// State is what a node has made of the change log. Its methods are called from
// many goroutines, and never from within View.
type State interface {
	// Head says which log this is, and how far this node has applied it.
	Head() log.Cursor
	// View calls fn with the state, which does not change meanwhile. fn is
	// short and keeps nothing of it.
	View(fn func(Rows))
}

// Source is what Shootdowns and Mappings read on a server: the state and the
// change log itself.
type Source interface {
	State
	// Entries returns what follows after, in order, at most about limit
	// entries; none means that after is the head. What it returns has been
	// applied to what View and the Server's Lookup show: only so is the answer
	// to a lookup after a shootdown never the old one. log.ErrCompacted: they
	// are not kept.
	Entries(after log.Seq, limit int) ([]log.Entry, error)
}

// ChangeSource is what Shootdowns reads on an agent. What an agent holds changes
// by more than entries: scopes come and go, a reset compares all. So it tells
// what became of the NICs that it holds, and numbers these changes itself: Head
// is the last one's number, of a cluster id that stays the same, and each is
// higher than the Seq of any NICRow.
type ChangeSource interface {
	State
	// Changes returns the changes after a number, in order, some of limit; none
	// means that there are no more. What they tell is in what View and the
	// Server's Lookup show. gap: not all is kept that came between, but who
	// goes through the rows, and hears these changes, misses nothing.
	Changes(after log.Seq, limit int) (changes []Change, gap bool)
}

// Change is a NIC that became another.
type Change struct {
	Seq     log.Seq
	Was, Is Place // the zero Place: there was, or is, none
}

// Place is what of a NIC lookups depend on.
type Place struct {
	MAC    log.MAC
	IP     netip.Addr // the zero Addr if it has none
	Node   log.UUID
	VNet   uint32
	VLAN   uint16
	OnVNet bool // VNet and VLAN count
	// OfServer: it is a compute node's own. Underlay: it carries VXLAN as well.
	OfServer, Underlay bool
}

// Rows is the part of the state that shootdowns follow from.
type Rows interface {
	Lookup
	// Nodes returns the compute nodes that have this underlay address; it is
	// one, or none if nobody has it.
	Nodes(underlay netip.Addr) []log.UUID
	// VNets returns the vnets that a node has NICs on.
	VNets(node log.UUID) []uint32
	// NICs yields the NICs on a vnet of a MAC above after, by rising MAC.
	NICs(vnet uint32, after log.MAC) iter.Seq[NICRow]
	// NICsOn yields the NICs on vnets that a node has, in a fixed order.
	NICsOn(node log.UUID) iter.Seq[NICRow]
	// VNetOf returns the vnet and VLAN of a network; false if it is not known,
	// or is on no vnet.
	VNetOf(network log.UUID) (vnet uint32, vlan uint16, ok bool)
	// Networks yields the networks that are on vnets, with their vnets.
	Networks() iter.Seq2[log.UUID, uint32]
	// AllNICs yields every NIC of a MAC above after, by rising MAC; nobody
	// changes them.
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

// entryBatch is how many entries are read and noted at a time: it bounds for
// how long the state is held still.
const entryBatch = 1024

// hasEntry returns log.ErrOtherLog if a source's log has another chain at a seq: a
// server that was rebuilt has other entries under the same seqs. It is asked behind a
// reading, so that what was read is of the log of the place.
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
