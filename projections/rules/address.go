package rules

import (
	"fmt"
	"net/netip"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// belongsToRouter is the belongs_to_type of the addresses of routers.
const belongsToRouter = "router"

func familyOf(ip netip.Addr) string {
	switch {
	case !ip.IsValid():
		return ""
	case ip.Is4():
		return "ipv4"
	default:
		return "ipv6"
	}
}

// usable returns the lowest and the highest address that a NIC may have. The
// network address is none (RFC 4291 section 2.6.1 for IPv6), nor is IPv4's
// broadcast address; subnets of one or two addresses have neither (RFC 3021,
// RFC 6164).
func usable(p netip.Prefix) (first, last netip.Addr) {
	first, last = p.Addr(), projections.LastAddr(p)
	if p.Bits() >= first.BitLen()-1 {
		return first, last
	}
	if first = first.Next(); first.Is4() {
		last = last.Prev()
	}
	return first, last
}

// misplaced says why ip cannot be that of a NIC on the subnet, or "".
func misplaced(subnet netip.Prefix, ip netip.Addr) string {
	first, last := usable(subnet)
	switch {
	case ip.Zone() != "" || !subnet.Contains(ip):
		return "cannot be outside subnet"
	case ip.Less(first):
		return "cannot be the network address"
	case last.Less(ip):
		return "cannot be the broadcast address"
	}
	return ""
}

// place notes an address that is not one of the subnet's.
func place(d *draft, field string, subnet netip.Prefix, ip netip.Addr) bool {
	why := misplaced(subnet, ip)
	if why != "" {
		first, last := usable(subnet)
		d.bad(field, field+" "+why, fmt.Sprintf("send an address from %s to %s", first, last))
	}
	return why == ""
}

// allocate returns the lowest free address of the network's provision range:
// one that no NIC has, and that is neither gateway nor resolver. It is not
// valid when there is none. The cost is O(log n) in the network's NICs, and
// O(m) in the addresses of it that the same change has touched. On the admin network no
// address is chosen at which a server is reached, of which the log may have no NIC.
func allocate(d *draft, n *log.Network) netip.Addr {
	reached := reachedOn(d, n)
	ip := lowest(d, n, reached, n.ProvisionStart, func(ip netip.Addr) netip.Addr {
		return d.FreeFrom(n.UUID, ip)
	})
	// An address that the change itself gave back may be lower still.
	for back := range d.FreedFrom(n.UUID, n.ProvisionStart) {
		if ip.IsValid() && !back.Less(ip) || n.ProvisionEnd.Less(back) {
			break
		}
		if !reached(back) && d.NICAt(n.UUID, back) == nil && !keeps(d, n, back) && ipObject(d, n.UUID, back) == nil {
			return back
		}
	}
	return ip
}

// reachedOn reports whether a server is reached at an address of a network, from
// log.FeatureConfined on; none is if the network is not an admin network.
func reachedOn(d *draft, n *log.Network) func(netip.Addr) bool {
	if !d.confined() || !isAdmin(d, n.UUID) {
		return func(netip.Addr) bool { return false }
	}
	return func(ip netip.Addr) bool { return reachedAt(d, log.UUID{}, ip) != nil }
}

// lowest steps from one address that may be free to the next, until nothing
// moves it on. Those that are reached are left out.
func lowest(d *draft, n *log.Network, reached func(netip.Addr) bool, ip netip.Addr, next func(netip.Addr) netip.Addr) netip.Addr {
	for ip.IsValid() && !n.ProvisionEnd.Less(ip) {
		free := next(ip)
		if free == ip && !reached(ip) && !keeps(d, n, ip) {
			return ip
		}
		if free == ip {
			free = ip.Next()
		}
		ip = free
	}
	return netip.Addr{}
}

// reserved reports whether an address is kept from allocation. A NIC that asks
// for it by name gets it: a router's, or a resolver's own.
func reserved(n *log.Network, ip netip.Addr) bool {
	return ip == n.Gateway || slices.Contains(n.Resolvers, ip)
}

// keeps is reserved, and, of a compute node's choice, whether a route of the network goes
// through the address: a gateway as well.
func keeps(d *draft, n *log.Network, ip netip.Addr) bool {
	return reserved(n, ip) || d.change.By.Role == log.RoleCN && d.confined() &&
		slices.ContainsFunc(n.Routes, func(r log.Route) bool { return r.Gateway == ip.String() })
}

// placeholder says which part of a network an address is that no NIC is given
// unasked, or "".
func placeholder(n *log.Network, ip netip.Addr) string {
	first, last := usable(n.Subnet)
	switch {
	case ip == n.Gateway:
		return "gateway"
	case slices.Contains(n.Resolvers, ip):
		return "resolver"
	case ip.Less(first):
		return "network address"
	case last.Less(ip):
		return "broadcast address"
	}
	return ""
}

// ipObject returns what is kept of an address, or nil.
func ipObject(d *draft, network log.UUID, ip netip.Addr) *log.IP {
	if r, ok := d.IP(network, ip); ok {
		return r.Object.(*log.IP)
	}
	return nil
}

// routerAt returns the router whose address this is, or nil.
func routerAt(d *draft, o *log.IP) *log.Router {
	if o.BelongsToType != belongsToRouter {
		return nil
	}
	r, ok := d.ByUUID(log.KindRouter, o.BelongsToUUID)
	if !ok {
		return nil
	}
	router := r.Object.(*log.Router)
	for i, network := range router.Networks {
		if network == o.NetworkUUID && i < len(router.Addresses) && router.Addresses[i] == o.IP {
			return router
		}
	}
	return nil
}

// putIP makes the event, if any, that turns one state of an address into another.
func putIP(d *draft, before projections.Record, after *log.IP) {
	says := after.Reserved || after.BelongsToType != "" || !after.BelongsToUUID.IsZero() || !after.OwnerUUID.IsZero()
	switch {
	case !says && before.Object != nil:
		d.emit(before, nil)
	case says && (before.Object == nil || !log.Equal(before.Object, after)):
		d.emit(before, after)
	}
}

// settleAllowed brings the further addresses of a NIC into their one form.
func settleAllowed(d *draft, n *log.NIC, op *log.Op) {
	if !wire(d) || !given(op, "allowed_ips") {
		return
	}
	for i, ip := range n.AllowedIPs {
		n.AllowedIPs[i] = ip.Unmap() // n is a clone of our own
	}
	slices.SortFunc(n.AllowedIPs, netip.Addr.Compare)
	if n.AllowedIPs = slices.Compact(n.AllowedIPs); len(n.AllowedIPs) == 0 {
		n.AllowedIPs = nil
	}
}

// checkAllowed checks the further addresses from which a NIC may send, where they or its
// network are new to it. They may lie outside its subnet, as what is routed to a VM does,
// and two NICs may have the same. before is nil on create.
func checkAllowed(d *draft, before, n *log.NIC) {
	if !wire(d) || len(n.AllowedIPs) == 0 {
		return
	}
	if before != nil && before.NetworkUUID == n.NetworkUUID && before.BelongsToType == n.BelongsToType && slices.Equal(before.AllowedIPs, n.AllowedIPs) {
		return
	}
	if len(n.AllowedIPs) > log.MaxAllowedIPs {
		d.bad("allowed_ips", fmt.Sprintf("there are %d addresses", len(n.AllowedIPs)), fmt.Sprintf("name at most %d, or send allow_ip_spoofing: true", log.MaxAllowedIPs))
		return
	}
	net := d.Network(n.NetworkUUID)
	if n.BelongsToType != "zone" || net == nil || !net.Fabric {
		d.bad("allowed_ips", "only NICs of VMs on fabric networks have it: there a node holds its VMs to their addresses", "leave it out")
		return
	}
	for _, ip := range n.AllowedIPs {
		switch {
		case !ip.IsValid() || ip.Zone() != "" || !ip.IsGlobalUnicast():
			d.bad("allowed_ips", fmt.Sprintf("%s is not the unicast address of a host", d.show(ip.String())), "send addresses such as 10.1.0.9")
		case familyOf(ip) != net.Family:
			d.bad("allowed_ips", fmt.Sprintf("%s is not of the network's family (%s)", ip, net.Family), fmt.Sprintf("leave out %s", ip))
		}
	}
}
