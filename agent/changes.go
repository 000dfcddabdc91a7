package agent

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// SVP clients remember answers and must be told when an answer is no longer true. What
// an agent holds changes by more than entries (scopes come and go, a reset compares
// everything). So the replica itself notes the changes of its NICs, in the step that
// changes its lookups. After a restart, the rows say what exists; the rows of bucket
// gone say what no longer exists.

const (
	// maxChanges is how many changes are kept for callers that ask rarely; 2 MB.
	maxChanges = 1 << 14
	// maxGone is how many removed mappings are remembered, also on disk. A client that
	// still has an older one, and has not asked since, sends to a node that drops the
	// frames, until the MAC or address is used again.
	maxGone = 1 << 14
	// posShift derives a process's first position from its incarnation, so that
	// positions of an earlier process are not used again: incarnations are at least the
	// clock's ms, and an agent does not take 1,000 changes each ms for long.
	posShift = 10
)

// Place is the part of a NIC that lookups depend on, and whether it is a compute node's
// own NIC.
type Place struct {
	MAC    log.MAC
	IP     netip.Addr // the zero Addr if it has none
	CN     log.UUID
	VNet   uint32
	VLAN   uint16
	OnVNet bool // VNet and VLAN are valid
	// OfServer: it is a compute node's own NIC. Underlay: it also carries VXLAN.
	OfServer, Underlay bool
	Port               uint16 // UDP, where an underlay NIC receives VXLAN packets; 0 of others
}

// Change is the change of a NIC from Was to Is.
type Change struct {
	Pos     uint64 // in the order of this process's changes
	Was, Is Place  // the zero Place means that there is no NIC
}

// isGone reports whether the change removed a mapping, so that no row has it.
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
	gone   []Change // changes that removed a mapping, recent or not
}

// newJournal begins after what an earlier process recorded as gone.
func newJournal(incarnation uint64, gone []Change) journal {
	first := incarnation << posShift
	if len(gone) > 0 {
		first = max(first, gone[len(gone)-1].Pos)
	}
	return journal{pos: first, base: first, gone: gone}
}

// addGone records mappings that an earlier process answered as gone, before all others.
func (j *journal) addGone(told []Change) {
	for _, c := range told {
		j.pos++
		j.gone = append(j.gone, Change{Pos: j.pos, Was: c.Was})
	}
	j.base = j.pos
}

// note adds a change and reports it.
func (j *journal) note(was, is Place) Change {
	j.pos++
	c := Change{j.pos, was, is}
	// Cutting at twice the bound means one copy for many changes.
	if j.recent = append(j.recent, c); len(j.recent) >= 2*maxChanges {
		j.recent = append(j.recent[:0], j.recent[maxChanges:]...)
		j.base = j.recent[0].Pos - 1
	}
	if c.isGone() {
		j.gone = cutGone(append(j.gone, c))
	}
	return c
}

// cutGone keeps the newest maxGone.
func cutGone(gone []Change) []Change {
	if len(gone) < 2*maxGone {
		return gone
	}
	return append(gone[:0], gone[len(gone)-maxGone:]...)
}

// after returns the changes after a position, at most limit of them, and whether
// changes were discarded that the rows do not show.
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

// placeIn returns the place of a NIC in a state.
func placeIn(state *projections.State, o log.Object) Place {
	nic, ok := o.(*log.NIC)
	if !ok {
		return Place{}
	}
	p := Place{MAC: nic.MAC, IP: nic.IP.Unmap(), CN: nic.CNUUID, OfServer: nic.BelongsToType == "server"}
	if p.OfServer {
		if p.Underlay = nic.Underlay; p.Underlay {
			p.Port = projections.PortOr(nic.VXLANPort)
		}
		if p.CN.IsZero() {
			p.CN = nic.BelongsToUUID
		}
	}
	if network := state.Network(nic.NetworkUUID); network != nil && network.Fabric {
		p.VNet, p.VLAN, p.OnVNet = network.VNetID, uint16(network.VLANID), true
	}
	return p
}

// goneSize is the size in bytes of a row of bucket gone, which has what mappings need
// of a place:
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

// placesOn returns where the NICs of a network are, if the change from before to after
// moves them.
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
