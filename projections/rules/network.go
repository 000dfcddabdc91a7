package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/underlay"
)

var networkRules = hooks[*log.Network]{
	settle: func(d *draft, before, n *log.Network, op *log.Op) {
		allocateSubnet(d, n, op)
		settleNetwork(d, n, op)
		settleGateway(d, n)
		fitUnderlay(d, before, n, op)
	},
	check: func(d *draft, before, n *log.Network, _ *log.Op) {
		checkWire(d, before, n)
		was := before
		if was == nil {
			was = new(log.Network)
		}
		if checkNetwork(d, was, n); before != nil {
			checkPoolsOf(d, n)
		}
		checkUniqueName(d, before, n)
	},
	fixed:   fixedOf,
	isFixed: isFixedOf,
	remove:  removeNetwork,
	precede: func(d *draft, before, after *log.Network) {
		if after == nil {
			releaseAddresses(d, before)
		}
	},
}

func removeNetwork(d *draft, n *log.Network) {
	d.unused(n, "network must have no NICs provisioned", "delete its NICs first", projections.NICsOnNetwork(n.UUID))
	d.unused(n, "network is in use", "take it out of the pool or router first", projections.PoolsWith(n.UUID), projections.RoutersWith(n.UUID))
	checkReleased(d, n)
}

// releaseAddresses deletes the IP objects of a network, which go before it.
func releaseAddresses(d *draft, n *log.Network) {
	var gone []projections.Record
	for ip := range d.Objects(projections.IPsOn(n.UUID)) {
		if r, ok := d.Find(ip); ok {
			gone = append(gone, r)
		}
	}
	for _, r := range gone {
		d.emit(r, nil)
	}
}

// isFixedOf names fabrics where only theirs is immutable, and takes the same owners
// in another order for the same.
func isFixedOf(before, after *log.Network, field, message string) (string, bool) {
	if before.Fabric && (field == "owner_uuids" || field == "gateway") {
		message += " on fabrics"
		if field == "owner_uuids" && sameOwners(before, after) {
			return "", false
		}
	}
	return message, true
}

// fixedOf are the fields that only some networks may not change.
func fixedOf(d *draft, n *log.Network) (fixed []string) {
	strict := d.setting(SettingNetworkImmutable) == "true"
	if strict {
		fixed = append(fixed, "nic_tag", "vlan_id")
	}
	if n.Fabric {
		fixed = append(fixed, "owner_uuids")
		if strict {
			fixed = append(fixed, "gateway")
		}
	}
	return fixed
}

// settleNetwork brings the fields into their one form and fills in what the
// client left open; op's Set tells what it did not.
func settleNetwork(d *draft, n *log.Network, op *log.Op) {
	n.Gateway, n.ProvisionStart, n.ProvisionEnd = n.Gateway.Unmap(), n.ProvisionStart.Unmap(), n.ProvisionEnd.Unmap()
	n.Resolvers = slices.Clone(n.Resolvers)
	for i, ip := range n.Resolvers {
		n.Resolvers[i] = ip.Unmap()
	}
	slices.SortFunc(n.OwnerUUIDs, log.UUID.Compare) // n is a clone of our own
	n.OwnerUUIDs = slices.Compact(n.OwnerUUIDs)
	settleRoutes(d, n)
	if op.Action == log.Update && given(op, "routes") {
		keepRouterRoutes(d, n)
	}
	if op.Action != log.Create {
		return
	}
	if n.Resolvers == nil {
		n.Resolvers = []netip.Addr{} // always present, spec/napi.md section 3.1
	}
	if n.Family == "" && !given(op, "family") {
		n.Family = familyOf(n.Subnet.Addr())
	}
	if n.Subnet.IsValid() {
		first, last := usable(n.Subnet)
		if !n.ProvisionStart.IsValid() {
			n.ProvisionStart = first
		}
		if !n.ProvisionEnd.IsValid() {
			n.ProvisionEnd = last
		}
	}
	if n.InternetNAT && !n.Gateway.IsValid() {
		n.Gateway = n.ProvisionStart
	}
	if tag := d.tag(n.NICTag); tag != nil && n.MTU == 0 && !given(op, "mtu") {
		// A fabric's frames fit whole into the tag's, whichever IP the underlay speaks.
		if n.MTU = tag.MTU; n.Fabric {
			n.MTU -= projections.Overhead6
		}
	}
	settleVNet(d, n, op)
}

// settleVNet gives a new fabric network that names no vnet its owner's.
func settleVNet(d *draft, n *log.Network, op *log.Op) {
	if n.Fabric && n.VNetID == 0 && !given(op, "vnet_id") && len(n.OwnerUUIDs) == 1 {
		n.VNetID = vnetFor(d, n.OwnerUUIDs[0])
	}
}

// settleRoutes writes each route in its usual form, sorted by destination.
func settleRoutes(d *draft, n *log.Network) {
	routes := make(log.Routes, 0, len(n.Routes))
	for _, route := range n.Routes {
		if dst, ok := projections.ParseRouteDst(route.Dst); ok {
			if route.Dst = dst.String(); dst.IsSingleIP() {
				route.Dst = dst.Addr().String()
			}
		}
		if gw, err := netip.ParseAddr(route.Gateway); err == nil {
			route.Gateway = gw.Unmap().String()
		}
		routes = append(routes, route)
	}
	slices.SortFunc(routes, func(a, b log.Route) int { return strings.Compare(a.Dst, b.Dst) })
	if n.Routes = routes; len(routes) == 0 {
		n.Routes = nil
	}
}

// checkNetwork checks a network as it would stand; was is empty on create.
func checkNetwork(d *draft, was, n *log.Network) {
	if n.Name == "" || len(n.Name) > projections.MaxNameBytes {
		d.bad("name", fmt.Sprintf("must have 1 to %d characters", projections.MaxNameBytes), "choose a name, such as external")
	}
	d.checkDescription(was.Description, n.Description)
	if n.VLANID == 1 || n.VLANID > 4094 {
		d.bad("vlan_id", "VLAN ID must be a number between 0 and 4094, and not 1", "send 0 for untagged")
	}
	checkNetworkMTU(d, n)
	if len(n.OwnerUUIDs) > maxOwners {
		d.bad("owner_uuids", fmt.Sprintf("there are %d owners", len(n.OwnerUUIDs)), fmt.Sprintf("name at most %d", maxOwners))
	}
	if checkSubnet(d, n) {
		checkProvisionRange(d, n)
		checkGateway(d, n)
		checkResolvers(d, n)
		checkRoutes(d, n)
	}
	checkFabric(d, n)
	checkSelfProvision(d, n)
	if !d.refused() {
		checkOverlap(d, n)
	}
}

func checkNetworkMTU(d *draft, n *log.Network) {
	least, tag := leastMTU(n), d.tag(n.NICTag)
	switch {
	case n.NICTag == "":
		d.missing("nic_tag", "name the NIC tag that the network lies on")
		return
	case tag == nil:
		d.bad("nic_tag", fmt.Sprintf("nic tag \"%s\" does not exist", d.show(n.NICTag)), "create the tag first")
		return
	}
	if n.MTU < least || n.MTU > maxMTU {
		d.bad("mtu", fmt.Sprintf("mtu must be a number between %d and %d", least, maxMTU), "leave it out for the tag's")
	} else if n.MTU > tag.MTU {
		d.bad("mtu", "network mtu must be under nic_tag mtu", fmt.Sprintf("send at most %d, or raise the mtu of nic tag \"%s\" first", tag.MTU, tag.Name))
	}
}

// leastMTU is the least MTU that a network may have, in bytes.
func leastMTU(n *log.Network) uint32 {
	if n.Family == "ipv6" {
		return minNetwork6MTU // Linux switches IPv6 off below
	}
	return minNetworkMTU
}

// fitUnderlay compares an MTU that is new to a network with what the underlays of the
// compute nodes carry that bind it: the setting fabric.mtu says what follows. A network whose MTU and
// VLAN stay as they are is not looked at, so a node that reports less never makes an
// update of something else fail. It reads what the log had before the change.
//
// To clamp, an MTU that is sent is enough, also the one that there is: so a network that
// was made before a narrow node came is brought down by sending its MTU again.
func fitUnderlay(d *draft, before, n *log.Network, op *log.Op) {
	if !perNode(d) || !n.Fabric {
		return
	}
	mode := d.setting(SettingFabricMTU)
	asked := before == nil || n.MTU > before.MTU || n.VLANID != 0 && before.VLANID == 0 || mode == log.FabricMTUClamp && given(op, "mtu")
	if mode == log.FabricMTUWarn || !asked {
		return
	}
	found := underlay.Binding(d.State(), n)
	switch {
	case found.Count == 0:
	case mode == log.FabricMTUClamp && found.Fits >= leastMTU(n):
		n.MTU = found.Fits
	default:
		d.bad("mtu", fmt.Sprintf("mtu %d does not fit the underlay of %d compute nodes: %s", n.MTU, found.Count, found.Text(n.VLANID != 0)),
			fmt.Sprintf("send at most %d, or raise the MTU of these underlays; the setting %s says what is refused", found.Fits, SettingFabricMTU))
	}
}

// checkSubnet reports whether the subnet and family are good enough to judge
// the addresses by.
func checkSubnet(d *draft, n *log.Network) bool {
	const remedy = "send a subnet without host bits, as in 10.1.0.0/24"
	least := 8 // to 32 or 128, spec/napi.md section 3.4
	switch p := n.Subnet; {
	case !p.IsValid():
		d.missing("subnet", remedy)
		return false
	case p.Addr().Is4In6() || p.Masked() != p || p.Bits() < least:
		d.bad("subnet", "invalid CIDR format", fmt.Sprintf("%s, and a prefix length of %d to %d", remedy, least, p.Addr().Unmap().BitLen()))
		return false
	case p.Addr().IsMulticast() || p.Addr().IsLoopback() || p.Addr().IsUnspecified():
		d.bad("subnet", "the subnet is not of unicast addresses", remedy)
		return false
	}
	if want := familyOf(n.Subnet.Addr()); n.Family != want {
		d.bad("family", fmt.Sprintf("the subnet is of family %s", want), "leave it out")
		return false
	}
	return true
}

func checkProvisionRange(d *draft, n *log.Network) {
	bounds := true
	for _, end := range []struct {
		field string
		ip    netip.Addr
	}{{"provision_start_ip", n.ProvisionStart}, {"provision_end_ip", n.ProvisionEnd}} {
		if !end.ip.IsValid() {
			d.missing(end.field, "send an address of the subnet")
			bounds = false
		} else if !place(d, end.field, n.Subnet, end.ip) {
			bounds = false
		}
	}
	if bounds && n.ProvisionEnd.Less(n.ProvisionStart) {
		d.bad("provision_start_ip", "provision_start_ip must be before provision_end_ip", "swap them")
	}
}

func checkGateway(d *draft, n *log.Network) {
	if n.Gateway.IsValid() {
		place(d, "gateway", n.Subnet, n.Gateway)
	} else if n.InternetNAT {
		d.missing("gateway", "a network with internet_nat needs one")
	}
}

func checkResolvers(d *draft, n *log.Network) {
	if len(n.Resolvers) > maxResolvers {
		d.bad("resolvers", fmt.Sprintf("there are %d resolvers", len(n.Resolvers)), fmt.Sprintf("name at most %d", maxResolvers))
	}
	for _, ip := range n.Resolvers {
		if familyOf(ip) != n.Family || ip.Zone() != "" {
			d.bad("resolvers", fmt.Sprintf("resolvers should match subnet type (%s)", n.Family), fmt.Sprintf("leave out %s", ip))
		}
	}
}

func checkRoutes(d *draft, n *log.Network) {
	if len(n.Routes) > maxRoutes {
		d.bad("routes", fmt.Sprintf("there are %d routes", len(n.Routes)), fmt.Sprintf("name at most %d", maxRoutes))
		return
	}
	for i, route := range n.Routes {
		dst, ok := projections.ParseRouteDst(route.Dst)
		switch {
		case !ok:
			d.bad("routes", fmt.Sprintf("route destination \"%s\" is no address and no subnet", d.show(route.Dst)), "send an address, or a subnet without host bits")
			continue
		case familyOf(dst.Addr()) != n.Family:
			d.bad("routes", fmt.Sprintf("addresses used for routing should match subnet type (%s)", n.Family), fmt.Sprintf("leave out the route to %s", d.show(route.Dst)))
		case i > 0 && n.Routes[i-1].Dst == route.Dst:
			d.bad("routes", fmt.Sprintf("there are two routes to %s", d.show(route.Dst)), "send one")
		}
		if route.Gateway == "linklocal" {
			continue
		}
		gw, err := netip.ParseAddr(route.Gateway)
		switch {
		case err != nil || gw.Zone() != "":
			d.bad("routes", fmt.Sprintf("gateway \"%s\" of the route to %s is no address", d.show(route.Gateway), d.show(route.Dst)), "send an address, or linklocal")
		case familyOf(gw) != n.Family:
			d.bad("routes", fmt.Sprintf("addresses used for routing should match subnet type (%s)", n.Family), fmt.Sprintf("send another gateway for the route to %s", d.show(route.Dst)))
		case n.Fabric && misplaced(n.Subnet, gw) != "":
			d.bad("routes", fmt.Sprintf("gateway %s of the route to %s %s", gw, d.show(route.Dst), misplaced(n.Subnet, gw)), "a fabric has no way to it: send an address of the subnet")
		}
	}
}

func checkFabric(d *draft, n *log.Network) {
	if !n.Fabric {
		for _, only := range []struct {
			field string
			set   bool
		}{{"vnet_id", n.VNetID != 0}, {"internet_nat", n.InternetNAT}, {"gateway_provisioned", n.GatewayProvisioned}} {
			if only.set {
				d.bad(only.field, "only fabric networks have it", "leave it out, or send fabric: true")
			}
		}
		return
	}
	if len(n.OwnerUUIDs) != 1 {
		d.bad("owner_uuids", fmt.Sprintf("a fabric network has exactly one owner, not %d", len(n.OwnerUUIDs)), "name the owner of the fabric")
	}
	if n.Subnet.IsValid() && !projections.IsPrivate(n.Subnet) {
		d.bad("subnet", "subnet must be within private ranges", "send one of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or fc00::/7")
	}
	if n.VNetID == 0 || n.VNetID > log.MaxVNet {
		if len(n.OwnerUUIDs) == 1 || n.VNetID != 0 {
			d.bad("vnet_id", fmt.Sprintf("must be between 1 and %d", log.MaxVNet), "leave it out to have one chosen")
		}
		return
	}
	if len(n.OwnerUUIDs) == 1 {
		checkVLANsOn(d, n.VNetID, n.OwnerUUIDs[0])
	}
	if other := fabricOn(d, n.VNetID); other != nil && other.UUID != n.UUID && !sameOwners(other, n) {
		d.problem(log.FieldError{
			Field: "vnet_id", Code: log.ElementUsedBy, Message: "network owner_uuids do not match: the vnet is another owner's",
			Remedy: "leave vnet_id out to have one chosen", Type: "network", ID: other.ID(),
		})
	}
}

// checkWire checks what a network asks of the nodes that its VMs are on. What programs before
// log.FeatureWire stored of it unread is not looked at until it is changed.
func checkWire(d *draft, before, n *log.Network) {
	if !wire(d) || n.Fabric {
		return
	}
	if before == nil {
		before = new(log.Network)
	}
	for _, asked := range []struct {
		field    string
		was, now bool
	}{{"dhcp", before.DHCP, n.DHCP}, {"broadcast", before.Broadcast, n.Broadcast}} {
		if asked.now && !asked.was {
			d.bad(asked.field, "only fabric networks have it: the wire of another network is not the nodes'", "leave it out; what is on that wire answers, and passes broadcasts on")
		}
	}
}

func sameOwners(a, b *log.Network) bool {
	x, y := slices.Clone(a.OwnerUUIDs), slices.Clone(b.OwnerUUIDs)
	slices.SortFunc(x, log.UUID.Compare)
	slices.SortFunc(y, log.UUID.Compare)
	return slices.Equal(slices.Compact(x), slices.Compact(y))
}

// checkOverlap looks for networks whose subnets overlap where they may not. Each is named,
// by its UUID, up to maxUsedBy of them; before log.FeatureTriton only one was.
func checkOverlap(d *draft, n *log.Network) {
	var found []*log.Network
	for o := range d.Neighbours(n) {
		other := o.(*log.Network)
		if other.UUID == n.UUID || !other.Subnet.Overlaps(n.Subnet) {
			continue
		}
		if found = append(found, other); !triton(d) || len(found) == maxUsedBy {
			break
		}
	}
	slices.SortFunc(found, func(a, b *log.Network) int { return a.UUID.Compare(b.UUID) })
	for _, other := range found {
		d.problem(log.FieldError{
			Field: "subnet", Code: log.ElementUsedBy, Message: "subnet overlaps with another network",
			Remedy: fmt.Sprintf("choose a subnet outside %s", other.Subnet), Type: "network", ID: other.ID(),
		})
	}
}

// maxReleased bounds the addresses that go with a network.
const maxReleased = 1024

// checkReleased refuses a network with addresses that belong to something, or
// with too many reserved ones to let them go in one change.
func checkReleased(d *draft, n *log.Network) {
	var users []log.FieldError
	released := 0
	for o := range d.Objects(projections.IPsOn(n.UUID)) {
		ip := o.(*log.IP)
		released++
		if !ip.BelongsToUUID.IsZero() && ip.BelongsToType != "other" && len(users) < maxUsedBy {
			users = append(users, usedBy("uuid", ip.BelongsToType, ip.BelongsToUUID.String(), fmt.Sprintf("free address %s first", ip.IP)))
		}
	}
	switch {
	case users != nil:
		d.refuse(log.CodeInUse, "network must have no IPs that belong to something", users...)
	case released > maxReleased:
		d.refuse(log.CodeInUse, fmt.Sprintf("network has %d reserved IPs", released), log.FieldError{
			Field: "uuid", Code: log.ElementInvalid, Message: fmt.Sprintf("at most %d reserved IPs go with their network", maxReleased), Remedy: "free the others first",
		})
	}
}

// adminTag is the NIC tag of that network, which cannot be renamed (spec/napi.md §3.4).
const adminTag = "admin"

// isAdmin reports whether a network is that on which servers reach all CNs.
func isAdmin(d *draft, network log.UUID) bool {
	r, ok := d.ByUUID(log.KindNetwork, network)
	return ok && r.Object.(*log.Network).NICTag == adminTag && !r.Object.(*log.Network).Fabric
}
