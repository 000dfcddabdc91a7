package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// A router has one address on each of its networks, which is reserved for it by
// an IP object that belongs to it, and which its VM's NICs may have. Each network
// has a route to every other's subnet through the router's address on it. Both
// come, change and go with the router, in the same change; the VMs hear of the
// routes as of any other of their networks.

var routerRules = hooks[*log.Router]{
	settle: settleRouter,
	check:  func(d *draft, before, r *log.Router, _ *log.Op) { checkRouter(d, before, r) },
	follow: func(d *draft, before, after *log.Router, _ *log.Op) { followRouter(d, before, after) },
}

// maxRouted bounds the networks of a router: all their events are one change's.
const maxRouted = 32

// settleRouter fills in what follows from a router's networks and VM.
func settleRouter(d *draft, before, r *log.Router, op *log.Op) {
	for i, ip := range r.Addresses {
		r.Addresses[i] = ip.Unmap() // r is a clone of our own
	}
	if !checkRouted(d, r, op) {
		return
	}
	was := *r
	r.Family, r.VNets, r.CNUUID = "", nil, log.UUID{}
	for _, uuid := range r.Networks {
		n := d.Network(uuid)
		r.Family = n.Family
		r.VNets = append(r.VNets, n.VNetID)
	}
	slices.Sort(r.VNets)
	r.VNets = slices.Compact(r.VNets)
	if vm := d.vm(r.VMUUID); vm != nil {
		r.CNUUID = vm.ServerUUID
	}
	if given(op, "family") && was.Family != r.Family || given(op, "vnet_ids") && !slices.Equal(was.VNets, r.VNets) || given(op, "cn_uuid") && was.CNUUID != r.CNUUID {
		d.bad("networks", "family, vnet_ids and cn_uuid follow from the networks and the VM", "leave them out")
	}
	placeRouter(d, before, r, op)
}

// checkRouted checks the networks of a router, and reports whether they will do.
func checkRouted(d *draft, r *log.Router, op *log.Op) bool {
	switch {
	case len(r.Networks) == 0 && op.Action == log.Create && !given(op, "networks"), len(r.Networks) == 1:
		d.missing("networks", "name two or more fabric networks of one owner")
		return false
	case len(r.Networks) == 0:
		d.missing("networks", "name two or more fabric networks, or delete the router")
		return false
	case len(r.Networks) > maxRouted:
		d.bad("networks", fmt.Sprintf("there are %d networks", len(r.Networks)), fmt.Sprintf("name at most %d", maxRouted))
		return false
	}
	networks := networksOf(d, r.Networks, "networks")
	if networks == nil {
		return false
	}
	if r.OwnerUUID.IsZero() && op.Action == log.Create && len(networks[0].OwnerUUIDs) == 1 {
		r.OwnerUUID = networks[0].OwnerUUIDs[0]
	}
	for i, n := range networks {
		switch {
		case !n.Fabric:
			d.bad("networks", fmt.Sprintf("network \"%s\" is not a fabric network", n.UUID), "name fabric networks only")
		case !isOwner(n, r.OwnerUUID):
			d.bad("networks", fmt.Sprintf("network \"%s\" is owned by another owner", n.UUID), "name networks of the router's owner")
		case n.Family != networks[0].Family:
			d.bad("networks", fmt.Sprintf("network \"%s\" is of family %s", n.UUID, n.Family), "name networks of one family")
		}
		for _, other := range networks[:i] {
			if n.Subnet.Overlaps(other.Subnet) {
				d.bad("networks", fmt.Sprintf("subnets of networks \"%s\" and \"%s\" overlap", other.UUID, n.UUID), "name networks whose subnets are disjoint")
			}
		}
	}
	return !d.refused()
}

// placeRouter gives a router an address on each network: those that were given,
// else those that it had, else free ones.
func placeRouter(d *draft, before, r *log.Router, op *log.Op) {
	asked := r.Addresses
	if !given(op, "addresses") && op.Action != log.Create {
		asked = nil
	}
	if len(asked) > 0 && len(asked) != len(r.Networks) {
		d.bad("addresses", fmt.Sprintf("there are %d addresses for %d networks", len(asked), len(r.Networks)), "send one for each network, or leave them out")
		return
	}
	addresses := make(log.Addresses, 0, len(r.Networks))
	for i, uuid := range r.Networks {
		n := d.Network(uuid)
		ip := addressOn(before, uuid)
		if len(asked) > 0 {
			ip = asked[i]
		}
		if ip.IsValid() {
			checkRouterIP(d, r, n, ip)
		} else {
			if ip = allocate(d, n); !ip.IsValid() {
				d.refuse(log.CodeSubnetFull, "no more free IPs", log.FieldError{
					Field: "networks", Code: log.ElementInvalid, Message: fmt.Sprintf("no address of network \"%s\" is free", n.UUID),
					Remedy: "widen the network's provision range, or delete NICs that are not needed",
				})
				return
			}
		}
		addresses = append(addresses, ip)
	}
	r.Addresses = addresses
}

// addressOn returns a router's address on a network; it is not valid if r is nil
// or has none.
func addressOn(r *log.Router, network log.UUID) netip.Addr {
	if r == nil {
		return netip.Addr{}
	}
	if i := slices.Index(r.Networks, network); i >= 0 && i < len(r.Addresses) {
		return r.Addresses[i]
	}
	return netip.Addr{}
}

// checkRouterIP checks an address that a router is to have.
func checkRouterIP(d *draft, r *log.Router, n *log.Network, ip netip.Addr) {
	if why := misplaced(n.Subnet, ip); why != "" {
		d.bad("addresses", fmt.Sprintf("address %s %s", ip, why), fmt.Sprintf("send an address of %s", n.Subnet))
		return
	}
	kind, user := "", ""
	if h := d.NICAt(n.UUID, ip); h != nil && h.BelongsToUUID != r.VMUUID {
		kind, user = h.BelongsToType, h.BelongsToUUID.String()
	} else if o := ipObject(d, n.UUID, ip); o != nil && !o.BelongsToUUID.IsZero() && o.BelongsToUUID != r.UUID {
		kind, user = o.BelongsToType, o.BelongsToUUID.String()
	}
	if kind != "" {
		d.problem(log.FieldError{
			Field: "addresses", Code: log.ElementUsedBy, Message: fmt.Sprintf("IP in use by %s \"%s\"", kind, user),
			Remedy: "choose another, or leave addresses out", Type: kind, ID: user,
		})
	}
}

func checkRouter(d *draft, before, r *log.Router) {
	d.checkName(r.Name)
	d.checkText("description", r.Description)
	if !d.refused() {
		rerouted(d, before, r)
	}
}

// routesVia are the routes that a router gives one of its networks.
func routesVia(d *draft, r *log.Router, network log.UUID) log.Routes {
	if r == nil {
		return nil
	}
	gateway := addressOn(r, network)
	if !gateway.IsValid() {
		return nil
	}
	var routes log.Routes
	for _, uuid := range r.Networks {
		if n := d.Network(uuid); n != nil && uuid != network {
			dst := n.Subnet.String()
			if n.Subnet.IsSingleIP() {
				dst = n.Subnet.Addr().String()
			}
			routes = append(routes, log.Route{Dst: dst, Gateway: gateway.String()})
		}
	}
	return routes
}

// rerouted returns the networks whose routes change when a router goes from one
// state to another, each of which may be nil, in the order of the networks; and
// notes what stands in the way.
func rerouted(d *draft, before, after *log.Router) (networks []*log.Network) {
	var uuids []log.UUID
	for _, r := range []*log.Router{before, after} {
		if r != nil {
			uuids = append(uuids, r.Networks...)
		}
	}
	slices.SortFunc(uuids, log.UUID.Compare)
	for _, uuid := range slices.Compact(uuids) {
		n := d.Network(uuid)
		if n == nil {
			continue
		}
		old, routes := routesVia(d, before, uuid), routesVia(d, after, uuid)
		if slices.Equal(old, routes) {
			continue
		}
		changed := log.Clone(n).(*log.Network)
		changed.Routes = slices.DeleteFunc(changed.Routes, func(route log.Route) bool { return slices.Contains(old, route) })
		for _, route := range routes {
			if i := slices.IndexFunc(changed.Routes, func(other log.Route) bool { return other.Dst == route.Dst }); i >= 0 {
				d.problem(log.FieldError{
					Field: "networks", Code: log.ElementUsedBy, Message: fmt.Sprintf("network \"%s\" has a route to %s already", uuid, d.show(route.Dst)),
					Remedy: "take that route from the network first", Type: "network", ID: uuid.String(),
				})
				continue
			}
			changed.Routes = append(changed.Routes, route)
		}
		if len(changed.Routes) > maxRoutes {
			d.bad("networks", fmt.Sprintf("network \"%s\" would have %d routes", uuid, len(changed.Routes)), fmt.Sprintf("%d are the most", maxRoutes))
		}
		sortRoutes(changed)
		networks = append(networks, changed)
	}
	return networks
}

func sortRoutes(n *log.Network) {
	slices.SortFunc(n.Routes, func(a, b log.Route) int { return strings.Compare(a.Dst, b.Dst) })
	if len(n.Routes) == 0 {
		n.Routes = nil
	}
}

// followRouter makes the events of addresses and routes that follow from a
// router's; before or after may be nil.
func followRouter(d *draft, before, after *log.Router) {
	for i := range networksOrNone(before) {
		network, ip := before.Networks[i], before.Addresses[i]
		if addressOn(after, network) != ip {
			if r, ok := d.IP(network, ip); ok {
				d.emit(r, nil)
			}
		}
	}
	for i := range networksOrNone(after) {
		network, ip := after.Networks[i], after.Addresses[i]
		if addressOn(before, network) != ip {
			r, _ := d.IP(network, ip)
			o := &log.IP{
				NetworkUUID: network, IP: ip, Reserved: true,
				BelongsToType: belongsToRouter, BelongsToUUID: after.UUID, OwnerUUID: after.OwnerUUID,
			}
			keepLabels(d, r, o)
			putIP(d, r, o)
		}
	}
	for _, n := range rerouted(d, before, after) {
		was, _ := d.ByUUID(log.KindNetwork, n.UUID)
		d.emit(was, n)
	}
}

func networksOrNone(r *log.Router) []log.UUID {
	if r == nil {
		return nil
	}
	return r.Networks[:min(len(r.Networks), len(r.Addresses))]
}

// keepRouterRoutes puts the routes of the routers that join a network back into
// a list of routes that lacks them: who updates a network's routes speaks of
// their own.
func keepRouterRoutes(d *draft, n *log.Network) {
	for o := range d.Objects(projections.RoutersWith(n.UUID)) {
		r := o.(*log.Router)
		for _, route := range routesVia(d, r, n.UUID) {
			i := slices.IndexFunc(n.Routes, func(other log.Route) bool { return other.Dst == route.Dst })
			switch {
			case i < 0:
				n.Routes = append(n.Routes, route)
			case n.Routes[i].Gateway != route.Gateway:
				d.problem(log.FieldError{
					Field: "routes", Code: log.ElementUsedBy, Message: fmt.Sprintf("the route to %s is that of router \"%s\"", d.show(route.Dst), r.UUID),
					Remedy: "leave it out, or update the router", Type: r.Kind().String(), ID: r.ID(),
				})
			}
		}
	}
	sortRoutes(n)
}

// followVM tells the routers of a VM on which CN it is; cn is none if it goes.
func followVM(d *draft, vm, cn log.UUID) {
	var moved []*log.Router
	for o := range d.Objects(projections.RoutersOf(vm)) {
		if r := o.(*log.Router); r.CNUUID != cn {
			moved = append(moved, r)
		}
	}
	for _, r := range moved {
		before, _ := d.ByUUID(log.KindRouter, r.UUID)
		after := log.Clone(r).(*log.Router)
		after.CNUUID = cn
		d.emit(before, after)
	}
}
