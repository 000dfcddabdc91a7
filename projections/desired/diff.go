package desired

import (
	"fmt"
	"reflect"
	"slices"

	"rutter/log"
)

// LinkChange is one thing that a kernel has to change between two Links.
type LinkChange struct {
	Action log.Action // Create, Update or Delete
	What   string     // vxlan, vlan, segment, fabric, neigh, fdb, peer or problem
	Key    string
	// Before and After are what it is, for people; "" where it is not.
	Before, After string
}

// DiffLinks returns what makes after of before: by kind of thing, in the order
// of their keys, each thing once.
func DiffLinks(before, after Links) []LinkChange {
	return slices.Concat(
		diffOf("vxlan", before.VXLANs, after.VXLANs, func(v VXLAN) string { return fmt.Sprintf("sdcvxl%d", v.VNet) }, func(v VXLAN) string {
			text := fmt.Sprintf("local %s port %d mtu %d", v.Local, v.Port, v.MTU)
			if v.OnDemand {
				text += " on demand"
			}
			if v.Flood {
				text += " broadcast"
			}
			return text
		}),
		diffOf("vlan", before.VLANs, after.VLANs, func(v VLAN) string { return fmt.Sprintf("vx%dv%d", v.VNet, v.ID) }, func(v VLAN) string { return fmt.Sprintf("mtu %d", v.MTU) }),
		diffOf("segment", before.Segments, after.Segments, func(s Segment) string { return fmt.Sprintf("br%dv%d", s.VNet, s.VLAN) }, func(s Segment) string {
			text := fmt.Sprintf("mtu %d", s.MTU)
			if s.Broadcast {
				text += " broadcast"
			}
			return text
		}),
		diffOf("fabric", before.Fabrics, after.Fabrics, func(f Fabric) string { return f.MAC.String() }, textOfFabric),
		diffOf("neigh", before.Neighs, after.Neighs, func(n Neigh) string { return fmt.Sprintf("%s on %s", n.IP, n.Link) }, func(n Neigh) string { return "at " + n.MAC.String() }),
		diffOf("fdb", before.FDB, after.FDB, func(f FDB) string { return fmt.Sprintf("%s on sdcvxl%d", f.MAC, f.VNet) }, func(f FDB) string { return "to " + f.Dst.String() }),
		diffOf("peer", before.Peers, after.Peers, func(r Peer) string { return fmt.Sprintf("%s on sdcvxl%d", r.Addr, r.VNet) }, func(Peer) string { return "" }),
		diffOf("problem", before.Problems, after.Problems, func(p Problem) string { return fmt.Sprintf("%s %s: %s", p.Kind, p.ID, p.Reason) }, func(Problem) string { return "" }),
	)
}

// textOfFabric names all that an agent programs of a fabric link.
func textOfFabric(f Fabric) string {
	text := fmt.Sprintf("vnet %d vlan %d mtu %d vm %s", f.VNet, f.VLAN, f.MTU, f.VM)
	if f.Namespace != "" {
		text += " netns " + f.Namespace
	}
	if len(f.Addresses) > 0 {
		text += fmt.Sprintf(" addresses %v", f.Addresses)
	}
	if f.Gateway.IsValid() {
		text += " gateway " + f.Gateway.String()
	}
	for _, r := range f.Routes {
		text += fmt.Sprintf(" route %s via %s", r.Dst, r.Gateway)
	}
	if len(f.Resolvers) > 0 {
		text += fmt.Sprintf(" resolvers %v", f.Resolvers)
	}
	if len(f.Allowed) > 0 {
		text += fmt.Sprintf(" allowed %v", f.Allowed)
	}
	for _, may := range []struct {
		is   bool
		name string
	}{
		{f.Security.AnyMAC, "allow_mac_spoofing"},
		{f.Security.AnyIP, "allow_ip_spoofing"},
		{f.Security.DHCPServer, "allow_dhcp_spoofing"},
		{f.Security.AnyTraffic, "allow_restricted_traffic"},
		{f.Security.Promiscuous, "allow_unfiltered_promisc"},
	} {
		if may.is {
			text += " " + may.name
		}
	}
	if f.Hold {
		text += " held"
	}
	if f.Attach != (Attach{}) {
		text += " " + f.Attach.String()
	}
	return text
}

func diffOf[T any](what string, before, after []T, key, text func(T) string) (changes []LinkChange) {
	was := make(map[string]int, len(before))
	for i, v := range before {
		was[key(v)] = i
	}
	for _, v := range after {
		k := key(v)
		i, held := was[k]
		delete(was, k)
		switch {
		case !held:
			changes = append(changes, LinkChange{log.Create, what, k, "", text(v)})
		case !reflect.DeepEqual(before[i], v):
			changes = append(changes, LinkChange{log.Update, what, k, text(before[i]), text(v)})
		}
	}
	for _, v := range before {
		if _, gone := was[key(v)]; gone {
			changes = append(changes, LinkChange{log.Delete, what, key(v), text(v), ""})
		}
	}
	return changes
}
