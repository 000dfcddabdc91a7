package desired

import (
	"rutter/projections"
)

// Limits says which vnets are on demand: those that have more entries on a CN
// than are programmed ahead.
type Limits struct {
	// Entries is how many entries of one vnet are programmed ahead on a CN,
	// neighbours and forwarding entries together; 0: any number.
	Entries int
	// OnDemand are the vnets that were on demand before. They stay so until
	// they have an eighth less than Entries: a vnet at the limit does not go
	// back and forth with each NIC.
	OnDemand map[uint32]bool
}

// over reports whether a vnet with so many entries is on demand.
func (l *Limits) over(vnet uint32, entries int) bool {
	switch {
	case l.Entries <= 0:
		return false
	case l.OnDemand[vnet]:
		return entries > l.Entries-l.Entries/8
	}
	return entries > l.Entries
}

// entries returns how many entries each vnet of a CN's NICs has there, none of
// them left out for being unreachable.
func entries(s *projections.State, nics []projections.NICRow) map[uint32]int {
	n := map[uint32]int{}
	for _, r := range nics {
		vnet := r.Home().VNet
		if _, counted := n[vnet]; !counted {
			n[vnet] = projections.NICsOnVNet(vnet).Len(s)
		}
		n[vnet] += projections.NICsOnNetwork(r.Network()).Len(s)
	}
	return n
}

// onDemand returns the vnets of a CN's NICs that are over the limits.
func onDemand(s *projections.State, nics []projections.NICRow, limits Limits) map[uint32]bool {
	if limits.Entries <= 0 {
		return nil
	}
	demand := map[uint32]bool{}
	for vnet, n := range entries(s, nics) {
		if limits.over(vnet, n) {
			demand[vnet] = true
		}
	}
	return demand
}
