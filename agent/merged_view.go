package agent

import (
	"cmp"
	"net/netip"
	"slices"

	"rutter/agent/link"
	"rutter/log"
	"rutter/projections/desired"
)

// mergedLinks is what either of two views wants. If both have a thing, the first
// counts.
func mergedLinks(first, second desired.Links) desired.Links {
	all := desired.Links{
		VXLANs: mergeLists(first.VXLANs, second.VXLANs, func(a, b desired.VXLAN) int { return cmp.Compare(a.VNet, b.VNet) }),
		VLANs: mergeLists(first.VLANs, second.VLANs, func(a, b desired.VLAN) int {
			return cmp.Or(cmp.Compare(a.VNet, b.VNet), cmp.Compare(a.ID, b.ID))
		}),
		Fabrics: mergeLists(first.Fabrics, second.Fabrics, func(a, b desired.Fabric) int { return a.MAC.Compare(b.MAC) }),
		Neighs: mergeLists(first.Neighs, second.Neighs, func(a, b desired.Neigh) int {
			return cmp.Or(a.Link.Compare(b.Link), a.IP.Compare(b.IP))
		}),
		FDB: mergeLists(first.FDB, second.FDB, func(a, b desired.FDB) int {
			return cmp.Or(cmp.Compare(a.VNet, b.VNet), a.MAC.Compare(b.MAC))
		}),
		Segments: mergeLists(first.Segments, second.Segments, desired.CompareSegment),
		Peers:    mergeLists(first.Peers, second.Peers, desired.ComparePeer),
		Problems: second.Problems,
	}
	return onDemand(all, second.VXLANs)
}

// onDemand leaves out the entries of vnets that are on demand in one of the views:
// answers to the kernel's misses use both views. The nodes of the entries are peers.
func onDemand(all desired.Links, second []desired.VXLAN) desired.Links {
	demand := make(map[uint32]bool)
	for _, v := range slices.Concat(all.VXLANs, second) {
		if v.OnDemand {
			demand[v.VNet] = true
		}
	}
	if len(demand) == 0 {
		return all
	}
	for i := range all.VXLANs {
		all.VXLANs[i].OnDemand = demand[all.VXLANs[i].VNet]
	}
	links := make(map[log.MAC]bool)
	for i := range all.Fabrics {
		links[all.Fabrics[i].MAC] = demand[all.Fabrics[i].VNet]
	}
	for _, f := range all.FDB {
		if demand[f.VNet] {
			all.Peers = append(all.Peers, desired.Peer{VNet: f.VNet, Addr: f.Dst})
		}
	}
	slices.SortFunc(all.Peers, desired.ComparePeer)
	all.Peers = slices.Compact(all.Peers)
	all.Neighs = slices.DeleteFunc(all.Neighs, func(n desired.Neigh) bool { return links[n.Link] })
	all.FDB = slices.DeleteFunc(all.FDB, func(f desired.FDB) bool { return demand[f.VNet] })
	return all
}

// mergeLists merges two lists. If both have an element, the first counts.
func mergeLists[T any](first, second []T, compare func(a, b T) int) []T {
	all := slices.Concat(first, second)
	slices.SortStableFunc(all, compare)
	return slices.CompactFunc(all, func(a, b T) bool { return compare(a, b) == 0 })
}

// mergedLookup looks up entries in two views.
type mergedLookup struct{ first, second *desired.Entries }

var _ link.Lookup = mergedLookup{}

// Neigh implements link.Lookup.
func (u mergedLookup) Neigh(on log.MAC, ip netip.Addr) (desired.Neigh, bool) {
	if n, ok := u.first.Neigh(on, ip); ok {
		return n, true
	}
	return u.second.Neigh(on, ip)
}

// FDB implements link.Lookup.
func (u mergedLookup) FDB(vnet uint32, mac log.MAC) (desired.FDB, bool) {
	if f, ok := u.first.FDB(vnet, mac); ok {
		return f, true
	}
	return u.second.FDB(vnet, mac)
}
