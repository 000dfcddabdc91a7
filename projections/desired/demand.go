package desired

import (
	"net/netip"

	"rutter/log"
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
			n[vnet] = s.Size(projections.NICsOnVNet(vnet))
		}
		n[vnet] += s.Size(projections.NICsOnNetwork(r.Network()))
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

// Entries finds single entries of a CN's kernel: what Of has of them,
// at a cost that does not depend on how many there are. It is good until the
// state changes, and not safe for concurrent use.
type Entries struct {
	planner
	reachable bool // the CN has an underlay
}

// NewEntries returns what finds the entries of cn.
func NewEntries(s *projections.State, cn log.UUID) *Entries {
	e := &Entries{planner: planner{s: s, cn: cn, problems: map[Problem]bool{}, remote: map[log.UUID]netip.Addr{}}}
	e.reachable = e.findUnderlay()
	return e
}

// Neigh returns the neighbour of an address on the fabric link of one of the
// CN's NICs. It is false where Of has none.
func (e *Entries) Neigh(link log.MAC, ip netip.Addr) (Neigh, bool) {
	own, ok := e.s.NICRow(link)
	if !e.reachable || !ok || own.Home().Type != log.ScopeVNet {
		return Neigh{}, false
	}
	nic := own.NIC()
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
// is on. It is false where Of has none, as for NICs of the CN itself.
func (e *Entries) FDB(vnet uint32, mac log.MAC) (FDB, bool) {
	r, ok := e.s.NICRow(mac)
	if !e.reachable || !ok || r.Home() != log.VNetScope(vnet) || r.CN() == e.cn {
		return FDB{}, false
	}
	dst := e.reach(r.CN())
	return FDB{VNet: vnet, MAC: mac, Dst: dst}, dst.IsValid()
}
