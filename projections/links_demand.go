package projections

import (
	"net/netip"

	"rutter/log"
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
func (s *State) entries(nics []*row) map[uint32]int {
	n := map[uint32]int{}
	for _, r := range nics {
		vnet := r.home().VNet
		if _, counted := n[vnet]; !counted {
			n[vnet] = s.nicsOnVNet[vnet].len()
		}
		n[vnet] += s.nicsOnNet[r.network()].len()
	}
	return n
}

// onDemand returns the vnets of a CN's NICs that are over the limits.
func (s *State) onDemand(nics []*row, limits Limits) map[uint32]bool {
	if limits.Entries <= 0 {
		return nil
	}
	demand := map[uint32]bool{}
	for vnet, n := range s.entries(nics) {
		if limits.over(vnet, n) {
			demand[vnet] = true
		}
	}
	return demand
}

// Entries finds single entries of a CN's kernel: what DesiredLinks has of them,
// at a cost that does not depend on how many there are. It is good until the
// state changes, and not safe for concurrent use.
type Entries struct {
	planner
	reachable bool // the CN has an underlay
}

// Entries returns what finds the entries of cn.
func (s *State) Entries(cn log.UUID) *Entries {
	e := &Entries{planner: planner{s: s, cn: cn, problems: map[Problem]bool{}, remote: map[log.UUID]netip.Addr{}}}
	e.reachable = e.findUnderlay()
	return e
}

// Neigh returns the neighbour of an address on the fabric link of one of the
// CN's NICs. It is false where DesiredLinks has none.
func (e *Entries) Neigh(link log.MAC, ip netip.Addr) (Neigh, bool) {
	own := e.s.row(log.KindNIC, string(link[:]))
	if !e.reachable || own == nil || own.home().Type != log.ScopeVNet {
		return Neigh{}, false
	}
	nic := own.nic()
	if nic.CNUUID != e.cn || nic.BelongsToType != "zone" {
		return Neigh{}, false
	}
	r, ok := e.s.NICAt(nic.NetworkUUID, ip)
	if !ok {
		return Neigh{}, false
	}
	o := r.Object.(*log.NIC)
	if o.MAC == link || o.CNUUID != e.cn && !e.reach(o.CNUUID).IsValid() {
		return Neigh{}, false
	}
	return Neigh{Link: link, IP: o.IP, MAC: o.MAC}, true
}

// FDB returns the forwarding entry of a MAC on a vnet that one of the CN's NICs
// is on. It is false where DesiredLinks has none, as for NICs of the CN itself.
func (e *Entries) FDB(vnet uint32, mac log.MAC) (FDB, bool) {
	r := e.s.row(log.KindNIC, string(mac[:]))
	if !e.reachable || r == nil || r.home() != log.VNetScope(vnet) || r.cnUUID() == e.cn {
		return FDB{}, false
	}
	dst := e.reach(r.cnUUID())
	return FDB{VNet: vnet, MAC: mac, Dst: dst}, dst.IsValid()
}
