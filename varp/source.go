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

// Lookup answers VL2 and VL3 for a Server. Both methods are called from many goroutines
// at once, once for each message, and must not wait for disk or network, because the
// next answers on the same connection wait too. An answer is never older than what this
// node has applied. vnet is at most log.MaxVNet.
type Lookup interface {
	// VL2 returns where the NIC with this MAC is, false if there is none.
	VL2(vnet uint32, mac log.MAC) (Underlay, bool)
	// VL3 returns the MAC of ip, and where it is, false if there is none. ip is never
	// IPv4-mapped: ::ffff:10.0.0.1 on the wire arrives as 10.0.0.1.
	VL3(vnet uint32, ip netip.Addr) (log.MAC, Underlay, bool)
}

// BatchLookup is a Lookup that a Server brings up to date once for the requests that it
// read together: each of their answers is as of a moment after the last of them came.
type BatchLookup interface {
	Lookup
	// Begin returns the Lookup of a batch, and whether End must be called after it. It
	// stays as it is in between, so nothing may wait in between.
	Begin() (of Lookup, end bool)
	End()
}

// EventLog answers LOG_REQ and LOG_RM for a Server. Both methods are called from many
// goroutines at once. cn is an underlay address, never IPv4-mapped; that the client
// owns it is not verified.
type EventLog interface {
	// Events appends to dst the records that cn has not acknowledged, oldest first and
	// at most maxBytes of records (see Record.Size), and returns it. For an unknown
	// node there are none. The same records come again until they are removed. false
	// means that the log cannot be read now: the client gets FATAL and asks again in
	// its next period.
	Events(dst []Record, cn netip.Addr, maxBytes int) ([]Record, bool)
	// Remove records that cn acknowledges the records of these ids. Unknown ids, and
	// those of other nodes, are ignored. ids is only valid during the call. false means
	// that this could not be recorded: FATAL, as above.
	Remove(cn netip.Addr, ids []log.UUID) bool
}
