package documents

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// settleNetwork brings a declared network into the form that deciding gives it. The
// routes that routers give it are not the documents'.
func settleNetwork(state *projections.State, n *log.Network, set []string) {
	n.OwnerUUIDs = sortedUUIDs(n.OwnerUUIDs)
	n.Gateway, n.ProvisionStart, n.ProvisionEnd = n.Gateway.Unmap(), n.ProvisionStart.Unmap(), n.ProvisionEnd.Unmap()
	n.Resolvers = unmapped(n.Resolvers)
	if !slices.Contains(set, "routes") {
		return
	}
	routes := settleRoutes(n.Routes)
	for _, route := range routedBy(state, n.UUID) {
		if !slices.ContainsFunc(routes, func(own log.Route) bool { return own.Dst == route.Dst }) {
			routes = append(routes, route)
		}
	}
	if n.Routes = settleRoutes(routes); len(n.Routes) == 0 {
		n.Routes = nil
	}
}

// routedBy are the routes that routers give a network: to the subnets of the others, by
// the router's address on it.
func routedBy(state *projections.State, network log.UUID) (routes log.Routes) {
	view := projections.NewOverlay(state, false)
	for o := range view.Objects(projections.RoutersWith(network)) {
		r := o.(*log.Router)
		i := slices.Index(r.Networks, network)
		if i < 0 || i >= len(r.Addresses) {
			continue
		}
		for _, uuid := range r.Networks {
			if other := view.Network(uuid); other != nil && uuid != network {
				routes = append(routes, log.Route{Dst: other.Subnet.String(), Gateway: r.Addresses[i].String()})
			}
		}
	}
	return settleRoutes(routes)
}

func unmapped(addresses log.Addresses) log.Addresses {
	addresses = slices.Clone(addresses)
	for i, ip := range addresses {
		addresses[i] = ip.Unmap()
	}
	return addresses
}

// settleNIC brings a declared NIC into the form that deciding gives it: on a network of the
// pool that is declared it stays, and on a network it keeps no tag and VLAN of its own.
func settleNIC(state *projections.State, before, n *log.NIC) {
	n.IP = n.IP.Unmap()
	n.AllowedIPs = unmapped(n.AllowedIPs)
	slices.SortFunc(n.AllowedIPs, netip.Addr.Compare)
	if n.AllowedIPs = slices.Compact(n.AllowedIPs); len(n.AllowedIPs) == 0 {
		n.AllowedIPs = nil
	}
	if rec, ok := state.Get(log.KindNetworkPool, n.NetworkUUID.String()); ok && !before.NetworkUUID.IsZero() &&
		slices.Contains(rec.Object.(*log.NetworkPool).Networks, before.NetworkUUID) {
		n.NetworkUUID = before.NetworkUUID
	}
}

// settleIP leaves out what deciding does not keep of an address that a NIC has: while it
// does, the NIC says whose it is.
func settleIP(state *projections.State, before, ip *log.IP) {
	view := projections.NewOverlay(state, false)
	nic := view.NICAt(ip.NetworkUUID, ip.IP)
	if nic != nil && ip.BelongsToUUID == nic.BelongsToUUID && ip.BelongsToType == nic.BelongsToType {
		ip.BelongsToType, ip.BelongsToUUID = before.BelongsToType, before.BelongsToUUID
	}
}

// settleJSON compares JSON by what it means. Of the properties of a VM a document speaks
// of those that it names; null takes one away.
func settleJSON(before, after log.Object, field string) {
	was, is := textOf(before, field), textOf(after, field)
	if was == is {
		return
	}
	if vm, of := after.(*log.VM); of && is != "" {
		is = merged(was, is)
		vm.Properties = is
	}
	if canonical(was) == canonical(is) {
		log.Assign(after, before, []string{field})
	}
}

func textOf(o log.Object, field string) string {
	v, _ := log.Field(o, field)
	text, _ := v.(string)
	return text
}

// canonical is JSON text with sorted names and no blanks; what is no JSON stays as it is.
func canonical(text string) string {
	v, ok := fromJSON(text)
	if !ok {
		return text
	}
	if text, err := jsonText(v); err == nil {
		return text
	}
	return text
}

// merged is one JSON object with the fields of another on top.
func merged(was, is string) string {
	var base, over map[string]json.RawMessage
	if json.Unmarshal([]byte(is), &over) != nil {
		return is
	}
	if was == "" || json.Unmarshal([]byte(was), &base) != nil || base == nil {
		base = make(map[string]json.RawMessage)
	}
	for name, value := range over {
		if strings.TrimSpace(string(value)) == "null" {
			delete(base, name)
		} else {
			base[name] = value
		}
	}
	if len(base) == 0 {
		return ""
	}
	text, err := marshal(base)
	if err != nil {
		return is
	}
	return canonical(text)
}
