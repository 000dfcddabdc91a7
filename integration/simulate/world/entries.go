package world

import (
	"fmt"
	"net/netip"
	"slices"

	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

// wrong says how the entries of a kernel differ from what a node wants. It compares them itself:
// differences is the judgement of the package that plans the steps, and as blind as that.
func (k *kernel) wrong(want desired.Links) (all []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	forwards := make(map[uint32]map[log.MAC]netip.Addr)
	for _, v := range want.VXLANs {
		if !v.OnDemand {
			forwards[v.VNet] = make(map[log.MAC]netip.Addr)
		}
	}
	for _, e := range want.FDB {
		if of := forwards[e.VNet]; of != nil {
			of[e.MAC] = e.Dst
		}
	}
	neighbours := make(map[log.MAC]map[netip.Addr]log.MAC)
	for _, f := range want.Fabrics {
		demand := forwards[f.VNet] == nil
		if !f.Idle && !demand {
			neighbours[f.MAC] = make(map[netip.Addr]log.MAC)
		}
	}
	for _, e := range want.Neighs {
		if of := neighbours[e.Link]; of != nil {
			of[e.IP] = e.MAC
		}
	}
	for _, l := range k.fake.Links {
		if of := forwards[l.VNI]; of != nil && l.Kind == plan.KindVXLAN {
			all = append(all, unlikeForwards(l, of)...)
		}
		if of := neighbours[l.MAC]; of != nil && l.IsFabric() {
			all = append(all, unlikeNeighbours(l, of)...)
		}
	}
	slices.Sort(all)
	return all
}

func unlikeForwards(l *plan.Link, want map[log.MAC]netip.Addr) (all []string) {
	found := 0
	for _, e := range l.FDB {
		if e.MAC == (log.MAC{}) {
			continue // for all
		}
		to, known := want[e.MAC]
		switch {
		case !known:
			all = append(all, fmt.Sprintf("%s leads %s to %s, and it is nowhere", l.Name, e.MAC, e.Dst))
		case to != e.Dst || !e.Permanent:
			all = append(all, fmt.Sprintf("%s leads %s to %s (permanent %v), and it is at %s", l.Name, e.MAC, e.Dst, e.Permanent, to))
		}
		if known {
			found++
		}
	}
	if found < len(want) {
		all = append(all, fmt.Sprintf("%s leads to %d of %d", l.Name, found, len(want)))
	}
	return all
}

func unlikeNeighbours(l *plan.Link, want map[netip.Addr]log.MAC) (all []string) {
	found := 0
	for _, e := range l.Neighs {
		mac, known := want[e.IP]
		switch {
		case !known:
			all = append(all, fmt.Sprintf("%s knows %s as %s, and it is nowhere", l.Name, e.IP, e.MAC))
		case mac != e.MAC:
			all = append(all, fmt.Sprintf("%s knows %s as %s, and it is %s", l.Name, e.IP, e.MAC, mac))
		}
		if known {
			found++
		}
	}
	if found < len(want) {
		all = append(all, fmt.Sprintf("%s knows %d of %d neighbours", l.Name, found, len(want)))
	}
	return all
}

// unlike is how a kernel differs from what a node wants, by both judgements.
func (k *kernel) unlike(want desired.Links) []string {
	return append(k.differences(want), k.wrong(want)...)
}
