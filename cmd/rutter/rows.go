package main

import (
	"iter"
	"net/netip"
	"slices"

	"rutter/log"
	"rutter/projections"
	"rutter/varp"
)

// svpSource is a change log and its state as varp.Shootdowns reads them.
type svpSource struct {
	head    func() log.Cursor
	entries func(after log.Seq, limit int) ([]log.Entry, error)
	view    func(fn func(*projections.State)) // under the lock of whoever applies
}

func (s svpSource) Head() log.Cursor { return s.head() }

func (s svpSource) Entries(after log.Seq, limit int) ([]log.Entry, error) {
	return s.entries(after, limit)
}

func (s svpSource) View(fn func(varp.Rows)) {
	s.view(func(state *projections.State) { fn(svpRows{state}) })
}

// svpRows shows a state as varp wants it.
type svpRows struct{ state *projections.State }

func (r svpRows) VL2(vnet uint32, mac log.MAC) (varp.Underlay, bool) {
	u, ok := r.state.VL2(vnet, mac)
	return varp.Underlay{Addr: u.Addr, Port: u.Port}, ok
}

func (r svpRows) VL3(vnet uint32, ip netip.Addr) (log.MAC, varp.Underlay, bool) {
	mac, u, ok := r.state.VL3(vnet, ip)
	return mac, varp.Underlay{Addr: u.Addr, Port: u.Port}, ok
}

// Nodes looks at each network that is not on a vnet: underlay addresses are on
// few, and Shootdowns remembers the answer.
func (r svpRows) Nodes(underlay netip.Addr) []log.UUID {
	var nodes []log.UUID
	for rec := range r.state.List(log.KindNetwork) {
		network := rec.Object.(*log.Network)
		if network.Fabric {
			continue
		}
		if rec, ok := r.state.NICAt(network.UUID, underlay); ok {
			if nic := rec.Object.(*log.NIC); nic.Underlay && nic.BelongsToType == "server" {
				nodes = append(nodes, nic.BelongsToUUID)
			}
		}
	}
	return nodes
}

func (r svpRows) VNets(node log.UUID) []uint32 {
	var vnets []uint32
	for _, scope := range r.state.Interest(node) {
		if scope.Type == log.ScopeVNet {
			vnets = append(vnets, scope.VNet)
		}
	}
	return vnets
}

func (r svpRows) NICs(vnet uint32, after log.MAC) iter.Seq[varp.NICRow] {
	return r.rows(r.state.NICsOnVNetAfter(vnet, after))
}

// NICsOn takes in a server's own NICs, which may name no cn_uuid.
func (r svpRows) NICsOn(node log.UUID) iter.Seq[varp.NICRow] {
	nics := slices.AppendSeq(slices.Collect(r.state.NICsOnCN(node)), r.state.NICsOf(node))
	return r.rows(slices.Values(nics))
}

// rows leaves out what is on no vnet.
func (r svpRows) rows(nics iter.Seq[projections.Record]) iter.Seq[varp.NICRow] {
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

func (r svpRows) VNetOf(network log.UUID) (vnet uint32, vlan uint16, ok bool) {
	rec, ok := r.state.Get(log.KindNetwork, network.String())
	if !ok {
		return 0, 0, false
	}
	n := rec.Object.(*log.Network)
	return n.VNetID, uint16(n.VLANID), n.Fabric
}

func (r svpRows) Networks() iter.Seq2[log.UUID, uint32] {
	return func(yield func(log.UUID, uint32) bool) {
		for rec := range r.state.List(log.KindNetwork) {
			if n := rec.Object.(*log.Network); n.Fabric && !yield(n.UUID, n.VNetID) {
				return
			}
		}
	}
}

func (r svpRows) AllNICs(after log.MAC) iter.Seq[*log.NIC] {
	return func(yield func(*log.NIC) bool) {
		for rec := range r.state.NICsAfter(after) {
			if !yield(rec.Object.(*log.NIC)) {
				return
			}
		}
	}
}
