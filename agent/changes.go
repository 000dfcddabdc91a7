package agent

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// Clients of SVP remember answers and must hear when one is no longer so. What an
// agent holds changes by more than entries (scopes come and go, a reset compares
// all), so the replica itself notes what became of its NICs, in the step in which
// its lookups change. After a restart, rows tell of all that there is; what there
// is no more is told by the rows of bucket gone.

const (
	// maxChanges is how many changes are kept for who asks seldom; 2 MB.
	maxChanges = 1 << 14
	// maxGone is how many mappings that nobody has any more are remembered, on
	// disk as well. A client that held an older one and did not ask since sends
	// to a node that drops it, until the MAC or address is given out again.
	maxGone = 1 << 14
	// posShift makes a process's first position from its incarnation, so that
	// none of an earlier one comes again: incarnations are ms of the clock at
	// least, and no agent takes a thousand changes each ms for long.
	posShift = 10
)

// Place is what of a NIC lookups depend on, and whether it is a compute node's own.
type Place struct {
	MAC    log.MAC
	IP     netip.Addr // the zero Addr if it has none
	CN     log.UUID
	VNet   uint32
	VLAN   uint16
	OnVNet bool // VNet and VLAN count
	// OfServer: it is a compute node's own. Underlay: it carries VXLAN as well.
	OfServer, Underlay bool
}

// Change is a NIC that became another.
type Change struct {
	Pos     uint64 // in the order of this process's changes
	Was, Is Place  // the zero Place: there was, or is, none
}

// isGone reports whether a mapping went with the change, so that no row tells of it.
func (c *Change) isGone() bool {
	if !c.Was.OnVNet {
		return false
	}
	left := !c.Is.OnVNet || c.Was.VNet != c.Is.VNet || c.Was.MAC != c.Is.MAC
	return left || c.Was.IP.IsValid() && c.Was.IP != c.Is.IP
}

// journal holds the newest changes of a replica, whose lock protects it.
type journal struct {
	pos    uint64   // of the last change
	recent []Change // all after base
	base   uint64
	gone   []Change // that took a mapping with them, recent or not
}

// newJournal begins after what an earlier process has noted: gone.
func newJournal(incarnation uint64, gone []Change) journal {
	first := incarnation << posShift
	if len(gone) > 0 {
		first = max(first, gone[len(gone)-1].Pos)
	}
	return journal{pos: first, base: first, gone: gone}
}

// addGone notes mappings that an earlier process told, as gone, before all others.
func (j *journal) addGone(told []Change) {
	for _, c := range told {
		j.pos++
		j.gone = append(j.gone, Change{Pos: j.pos, Was: c.Was})
	}
	j.base = j.pos
}

// note adds a change, and reports it.
func (j *journal) note(was, is Place) Change {
	j.pos++
	c := Change{j.pos, was, is}
	// Cut at twice the bound: one copy for each so many.
	if j.recent = append(j.recent, c); len(j.recent) >= 2*maxChanges {
		j.recent = append(j.recent[:0], j.recent[maxChanges:]...)
		j.base = j.recent[0].Pos - 1
	}
	if c.isGone() {
		j.gone = cutGone(append(j.gone, c))
	}
	return c
}

// cutGone leaves the newest maxGone.
func cutGone(gone []Change) []Change {
	if len(gone) < 2*maxGone {
		return gone
	}
	return append(gone[:0], gone[len(gone)-maxGone:]...)
}

// after returns the changes after a position, at most limit, and whether more
// was forgotten of them than rows tell.
func (j *journal) after(pos uint64, limit int) (changes []Change, gap bool) {
	byPos := func(c Change, pos uint64) int {
		if c.Pos <= pos {
			return -1
		}
		return 1
	}
	if gap = pos < j.base; gap {
		at, _ := slices.BinarySearchFunc(j.gone, pos, byPos)
		for ; at < len(j.gone) && j.gone[at].Pos <= j.base && len(changes) < limit; at++ {
			changes = append(changes, j.gone[at])
		}
	}
	if room := limit - len(changes); room > 0 {
		at, _ := slices.BinarySearchFunc(j.recent, pos, byPos)
		changes = append(changes, j.recent[at:min(at+room, len(j.recent))]...)
	}
	return changes, gap
}

// placeIn is place in a state.
func placeIn(state *projections.State, o log.Object) Place {
	nic, ok := o.(*log.NIC)
	if !ok {
		return Place{}
	}
	p := Place{MAC: nic.MAC, IP: nic.IP.Unmap(), CN: nic.CNUUID, OfServer: nic.BelongsToType == "server"}
	if p.OfServer {
		p.Underlay = nic.Underlay
		if p.CN.IsZero() {
			p.CN = nic.BelongsToUUID
		}
	}
	if network := state.Network(nic.NetworkUUID); network != nil && network.Fabric {
		p.VNet, p.VLAN, p.OnVNet = network.VNetID, uint16(network.VLANID), true
	}
	return p
}

// goneSize is that of a row of bucket gone, for what of a place mappings need:
//
//	0     4      6     12   28
//	| vnet | vlan | mac | ip | crc32c
const goneSize = 32

func goneKey(pos uint64) []byte { return binary.BigEndian.AppendUint64(nil, pos) }

func encodeGone(key []byte, p *Place) []byte {
	b := make([]byte, 0, goneSize)
	b = binary.BigEndian.AppendUint32(b, p.VNet)
	b = binary.BigEndian.AppendUint16(b, p.VLAN)
	b = append(b, p.MAC[:]...)
	ip := netip.IPv6Unspecified().As16()
	if p.IP.IsValid() {
		ip = p.IP.As16()
	}
	b = append(b, ip[:]...)
	return binary.BigEndian.AppendUint32(b, rowCRC(bucketGone, key, b))
}

func decodeGone(key, value []byte) (Change, error) {
	if len(key) != 8 || len(value) != goneSize || binary.BigEndian.Uint32(value[28:]) != rowCRC(bucketGone, key, value[:28]) {
		return Change{}, fmt.Errorf("%w: checksum of the mapping %x that is gone", errFile, key)
	}
	p := Place{
		VNet: binary.BigEndian.Uint32(value), VLAN: binary.BigEndian.Uint16(value[4:]),
		MAC: log.MAC(value[6:12]), IP: netip.AddrFrom16([16]byte(value[12:28])).Unmap(), OnVNet: true,
	}
	if p.IP.IsUnspecified() {
		p.IP = netip.Addr{}
	}
	return Change{Pos: binary.BigEndian.Uint64(key), Was: p}, nil
}

// placesOn returns where the NICs of a network are, if it moves them to become
// after what it was before.
func placesOn(state *projections.State, before, after log.Object) (all []Place) {
	a, _ := before.(*log.Network)
	b, _ := after.(*log.Network)
	switch {
	case a == nil && b == nil:
		return nil
	case a == nil:
		a = b
	case b != nil && a.Fabric == b.Fabric && a.VNetID == b.VNetID && a.VLANID == b.VLANID:
		return nil
	}
	for rec := range state.NICsOn(a.UUID) {
		all = append(all, placeIn(state, rec.Object))
	}
	return all
}
