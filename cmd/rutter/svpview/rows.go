package svpview

import (
	"iter"
	"net/netip"
	"slices"

	"rutter/log"
	"rutter/projections"
	"rutter/varp"
)

// Source is a change log and its state as varp.Shootdowns reads them.
type Source struct {
	OfHead    func() log.Cursor
	OfEntries func(after log.Seq, limit int) ([]log.Entry, error)
	OfState   func(fn func(*projections.State)) // calls fn under the lock of applying
}

// Head implements varp.Source.
func (s Source) Head() log.Cursor { return s.OfHead() }

// Entries implements varp.Source.
func (s Source) Entries(after log.Seq, limit int) ([]log.Entry, error) {
	return s.OfEntries(after, limit)
}

// View implements varp.Source.
func (s Source) View(fn func(varp.Rows)) {
	s.OfState(func(state *projections.State) { fn(Rows{state}) })
}

// Rows adapts a state to varp.Rows.
type Rows struct{ State *projections.State }

// VL2 implements varp.Rows.
func (r Rows) VL2(vnet uint32, mac log.MAC) (varp.Underlay, bool) {
	u, ok := r.State.VL2(vnet, mac)
	return varp.Underlay{Addr: u.Addr, Port: u.Port}, ok
}

// VL3 implements varp.Rows.
func (r Rows) VL3(vnet uint32, ip netip.Addr) (log.MAC, varp.Underlay, bool) {
	mac, u, ok := r.State.VL3(vnet, ip)
	return mac, varp.Underlay{Addr: u.Addr, Port: u.Port}, ok
}

// Nodes searches each network that is not on a vnet. There are few of them, and
// Shootdowns caches the answer.
func (r Rows) Nodes(underlay netip.Addr) []log.UUID {
	var nodes []log.UUID
	for rec := range r.State.List(log.KindNetwork) {
		network := rec.Object.(*log.Network)
		if network.Fabric {
			continue
		}
		if rec, ok := r.State.NICAt(network.UUID, underlay); ok {
			if nic := rec.Object.(*log.NIC); nic.Underlay && nic.BelongsToType == "server" {
				nodes = append(nodes, nic.BelongsToUUID)
			}
		}
	}
	return nodes
}

// VNets implements varp.Rows.
func (r Rows) VNets(node log.UUID) []uint32 {
	var vnets []uint32
	for _, scope := range r.State.Interest(node) {
		if scope.Type == log.ScopeVNet {
			vnets = append(vnets, scope.VNet)
		}
	}
	return vnets
}

// NICs implements varp.Rows.
func (r Rows) NICs(vnet uint32, after log.MAC) iter.Seq[varp.NICRow] {
	return r.rows(r.State.NICsOnVNetAfter(vnet, after))
}

// NICsOn includes a server's own NICs, which may have no cn_uuid.
func (r Rows) NICsOn(node log.UUID) iter.Seq[varp.NICRow] {
	nics := slices.AppendSeq(slices.Collect(r.State.NICsOnCN(node)), r.State.NICsOf(node))
	return r.rows(slices.Values(nics))
}

// rows omits NICs that are on no vnet.
func (r Rows) rows(nics iter.Seq[projections.Record]) iter.Seq[varp.NICRow] {
	return func(yield func(varp.NICRow) bool) {
		for rec := range nics {
			nic := rec.Object.(*log.NIC)
			vnet, vlan, ok := r.VNetOf(nic.NetworkUUID)
			if ok && !yield(varp.NICRow{VNet: vnet, VLAN: vlan, MAC: nic.MAC, IP: nic.IP, Seq: rec.Seq}) {
				return
			}
		}
	}
}

// VNetOf implements varp.Rows.
func (r Rows) VNetOf(network log.UUID) (vnet uint32, vlan uint16, ok bool) {
	rec, ok := r.State.Get(log.KindNetwork, network.String())
	if !ok {
		return 0, 0, false
	}
	n := rec.Object.(*log.Network)
	return n.VNetID, uint16(n.VLANID), n.Fabric
}

// Networks implements varp.Rows.
func (r Rows) Networks() iter.Seq2[log.UUID, uint32] {
	return func(yield func(log.UUID, uint32) bool) {
		for rec := range r.State.List(log.KindNetwork) {
			if n := rec.Object.(*log.Network); n.Fabric && !yield(n.UUID, n.VNetID) {
				return
			}
		}
	}
}

// AllNICs implements varp.Rows.
func (r Rows) AllNICs(after log.MAC) iter.Seq[*log.NIC] {
	return func(yield func(*log.NIC) bool) {
		for rec := range r.State.NICsAfter(after) {
			if !yield(rec.Object.(*log.NIC)) {
				return
			}
		}
	}
}
