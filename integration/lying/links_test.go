package lying

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"rutter/log"
	"rutter/projections/desired"
)

// compare holds what others have now, and what the liar sees, against before.
func (f *finding) compare(before, after *view) *breach {
	f.macs = make(map[log.MAC]bool)
	came := make(map[log.Scope]bool) // that NICs brought, which were judged
	for r := range f.w.state.List(log.KindNIC) {
		if n := r.Object.(*log.NIC); mine(n, f.sled) {
			f.macs[n.MAC] = true
			if net := f.w.state.Network(n.NetworkUUID); net != nil {
				came[scopeOf(net)] = true
			}
		}
	}
	took := false // a NIC came to the liar by right: its CN loses what it had for it
	for _, o := range f.was {
		if n, ok := o.(*log.NIC); ok {
			now := f.w.nic(n.MAC)
			took = took || !mine(n, f.sled) && (now == nil || mine(now, f.sled))
			_, given := f.given[n.BelongsToUUID]
			f.macs[n.MAC] = f.macs[n.MAC] || mine(n, f.sled) || now == nil || n.BelongsToType == "zone" && (given || f.vmIsMine(n.BelongsToUUID))
		}
	}
	for _, scope := range after.interest[liar] {
		if !slices.Contains(before.interest[liar], scope) && !came[scope] {
			return breachf("it sees more", "scope %s", scope)
		}
	}
	for vnet, fits := range after.fits {
		if was, both := before.fits[vnet]; both && was != fits && !took {
			return breachf("it narrows others' networks", "vnet %d: %d became %d", vnet, was, fits)
		}
	}
	underlay, _ := f.w.state.UnderlayOf(liar)
	for _, cn := range others {
		if !took && !slices.Equal(before.interest[cn], after.interest[cn]) {
			return breachf("another's interest changed", "%s: %v became %v", cn, before.interest[cn], after.interest[cn])
		}
		if why := f.linksDiffer(before.links[cn], after.links[cn], took, underlay.Addr); why != "" {
			return breachf("another's kernel changed", "%s: %s", cn, why)
		}
	}
	return nil
}

// linksDiffer says how a CN's desired links differ in what is not of the liar's NICs.
func (f *finding) linksDiffer(a, b desired.Links, took bool, underlay netip.Addr) string {
	neighs := func(l []desired.Neigh) []desired.Neigh {
		return slices.DeleteFunc(slices.Clone(l), func(n desired.Neigh) bool { return f.macs[n.MAC] || f.macs[n.Link] })
	}
	fdb := func(l []desired.FDB) []desired.FDB {
		return slices.DeleteFunc(slices.Clone(l), func(e desired.FDB) bool {
			left := took && !slices.ContainsFunc(b.VXLANs, func(x desired.VXLAN) bool { return x.VNet == e.VNet })
			return f.macs[e.MAC] || left
		})
	}
	fabrics := func(l []desired.Fabric) []desired.Fabric {
		return slices.DeleteFunc(slices.Clone(l), func(e desired.Fabric) bool { return f.macs[e.MAC] })
	}
	for _, e := range b.FDB {
		if f.macs[e.MAC] && f.w.nic(e.MAC) != nil && mine(f.w.nic(e.MAC), f.sled) && e.Dst != underlay {
			return fmt.Sprintf("the liar's %s is at %s", e.MAC, e.Dst)
		}
	}
	switch {
	case !slices.Equal(neighs(a.Neighs), neighs(b.Neighs)):
		return fmt.Sprintf("neighbours %v became %v", a.Neighs, b.Neighs)
	case !slices.Equal(fdb(a.FDB), fdb(b.FDB)):
		return fmt.Sprintf("forwarding entries %v became %v", a.FDB, b.FDB)
	case !slices.EqualFunc(fabrics(a.Fabrics), fabrics(b.Fabrics), func(x, y desired.Fabric) bool { return reflect.DeepEqual(x, y) }):
		return fmt.Sprintf("fabric links %v became %v", a.Fabrics, b.Fabrics)
	case !took && (!slices.Equal(a.VXLANs, b.VXLANs) || !slices.Equal(a.VLANs, b.VLANs)):
		return fmt.Sprintf("devices %v %v became %v %v", a.VXLANs, a.VLANs, b.VXLANs, b.VLANs)
	}
	return ""
}
