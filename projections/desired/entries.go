package desired

import (
	"net/netip"

	"rutter/log"
	"rutter/projections"
)

// Entries finds single entries of a CN's kernel: what Of has of them,
// at a cost that does not depend on how many there are. It is good until the
// state changes, and not safe for concurrent use.
type Entries struct {
	planner
	reachable bool // the CN has an underlay
}

// NewEntries returns what finds the entries of cn.
func NewEntries(s *projections.State, cn log.UUID) *Entries {
	e := &Entries{planner: newPlanner(s, cn)}
	e.reachable = e.findUnderlay()
	return e
}

// own returns one of the CN's NICs that have a fabric link.
func (e *Entries) own(mac log.MAC) (projections.NICRow, bool) {
	r, ok := e.s.NICRow(mac)
	if !e.reachable || !ok || r.Home().Type != log.ScopeVNet || r.CN() != e.cn {
		return projections.NICRow{}, false
	}
	nic := r.NIC()
	return r, nic.CNUUID == e.cn && nic.BelongsToType == "zone"
}

// Fabric returns the fabric link of one of the CN's NICs, at a cost of the NICs of its
// VM. It is false where Of has none.
func (e *Entries) Fabric(mac log.MAC) (Fabric, bool) {
	r, ok := e.own(mac)
	if !ok {
		return Fabric{}, false
	}
	return e.fabric(r), true
}

// Neigh returns the neighbour of an address on the fabric link of one of the
// CN's NICs. It is false where Of has none.
func (e *Entries) Neigh(link log.MAC, ip netip.Addr) (Neigh, bool) {
	own, ok := e.own(link)
	if !ok {
		return Neigh{}, false
	}
	r, ok := e.s.NICAt(own.Network(), ip)
	if !ok {
		return Neigh{}, false
	}
	o := r.Object.(*log.NIC)
	if o.MAC == link || o.CNUUID != e.cn && !e.reach(o.CNUUID).Addr.IsValid() {
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
	to := e.reach(r.CN())
	return e.forward(vnet, mac, to), to.Addr.IsValid()
}
