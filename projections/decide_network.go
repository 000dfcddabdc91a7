package projections

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"rutter/log"
)

// Overhead of VXLAN with a VLAN tag inside, in bytes: outer Ethernet is not
// counted by an MTU, inner Ethernet (14), VLAN (4), VXLAN (8), UDP (8) and outer
// IP (20 or 40) are (spec/kernel.md section 2: underlay - 54, IPv6 - 74).
const (
	overhead4 = 54
	overhead6 = 74
	vlanTag   = 4
)

func (d *draft) fillTag(t *log.NICTag, op *log.Op) {
	if t.MTU == 0 && !given(op, "mtu") {
		t.MTU = minTagMTU
	}
}

func (d *draft) checkTag(t *log.NICTag) {
	switch {
	case t.Name == "":
		d.missing("name", "send a name of letters, digits and underscores")
	case len(t.Name) > maxTagName:
		d.bad("name", fmt.Sprintf("must not be longer than %d characters", maxTagName), "choose a shorter name")
	case strings.ContainsFunc(t.Name, func(r rune) bool { return !isWordRune(r) }):
		d.bad("name", "must only contain numbers, letters and underscores", "choose another name, without / in it")
	}
	if t.MTU < minTagMTU || t.MTU > maxMTU {
		d.bad("mtu", fmt.Sprintf("mtu must be a number between %d and %d", minTagMTU, maxMTU), fmt.Sprintf("send %d unless the switches carry more", minTagMTU))
	} else if t.Name == adminTag && t.MTU != minTagMTU {
		d.bad("mtu", fmt.Sprintf("admin nic tag mtu must be %d", minTagMTU), "leave it out")
	}
	for o := range d.rows(func(s *store) *sorted[*row] { return s.tableOrder(log.KindNICTag) }) {
		if other := o.(*log.NICTag); other.UUID == t.UUID && other.Name != t.Name {
			d.problem(log.FieldError{
				Field: "uuid", Code: log.ElementDuplicate, Message: "Already exists", Remedy: "leave it out", Type: "nic_tag", ID: other.Name,
			})
		}
	}
}

// isWordRune accepts [A-Za-z0-9_].
func isWordRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_'
}

// checkTagUpdate keeps a tag's MTU at or above that of its networks.
func (d *draft) checkTagUpdate(before, t *log.NICTag) {
	if t.MTU >= before.MTU {
		return
	}
	named := 0
	for o := range d.rows(func(s *store) *sorted[*row] { return s.netsOnTag[t.Name] }) {
		if n := o.(*log.Network); n.MTU > t.MTU && named < maxUsedBy {
			named++
			d.problem(log.FieldError{
				Field: "mtu", Code: log.ElementUsedBy, Message: fmt.Sprintf("network \"%s\" has mtu %d", n.UUID, n.MTU),
				Remedy: "lower the networks' mtu first", Type: "network", ID: n.ID(),
			})
		}
	}
}

// settleNetwork brings the fields into their one form and fills in what the
// client left open; op's Set tells what it did not.
func (d *draft) settleNetwork(n *log.Network, op *log.Op) {
	n.Gateway, n.ProvisionStart, n.ProvisionEnd = n.Gateway.Unmap(), n.ProvisionStart.Unmap(), n.ProvisionEnd.Unmap()
	n.Resolvers = slices.Clone(n.Resolvers)
	for i, ip := range n.Resolvers {
		n.Resolvers[i] = ip.Unmap()
	}
	slices.SortFunc(n.OwnerUUIDs, compareUUIDs) // n is a clone of our own
	n.OwnerUUIDs = slices.Compact(n.OwnerUUIDs)
	d.settleRoutes(n)
	if op.Action == log.Update && given(op, "routes") {
		d.keepRouterRoutes(n)
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
			n.MTU -= overhead6
		}
	}
	if n.Fabric && n.VNetID == 0 && !given(op, "vnet_id") && len(n.OwnerUUIDs) == 1 {
		n.VNetID = d.vnetFor(n.OwnerUUIDs[0])
	}
}

// settleRoutes writes each route in its usual form, sorted by destination.
func (d *draft) settleRoutes(n *log.Network) {
	routes := make(log.Routes, 0, len(n.Routes))
	for _, route := range n.Routes {
		if dst, ok := parseDst(route.Dst); ok {
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

// parseDst reads a route's destination: an address, or a subnet without host bits.
func parseDst(text string) (netip.Prefix, bool) {
	if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" {
		ip = ip.Unmap()
		return netip.PrefixFrom(ip, ip.BitLen()), true
	}
	p, err := netip.ParsePrefix(text)
	return p, err == nil && p.Masked() == p && !p.Addr().Is4In6()
}

func (d *draft) checkNetwork(n *log.Network) {
	if n.Name == "" || len(n.Name) > MaxNameBytes {
		d.bad("name", fmt.Sprintf("must have 1 to %d characters", MaxNameBytes), "choose a name, such as external")
	}
	d.checkText("description", n.Description)
	if n.VLANID == 1 || n.VLANID > 4094 {
		d.bad("vlan_id", "VLAN ID must be a number between 0 and 4094, and not 1", "send 0 for untagged")
	}
	d.checkNetworkMTU(n)
	if len(n.OwnerUUIDs) > MaxOwners {
		d.bad("owner_uuids", fmt.Sprintf("there are %d owners", len(n.OwnerUUIDs)), fmt.Sprintf("name at most %d", MaxOwners))
	}
	if d.checkSubnet(n) {
		d.checkProvisionRange(n)
		d.checkGateway(n)
		d.checkResolvers(n)
		d.checkRoutes(n)
	}
	d.checkFabric(n)
	if !d.refused() {
		d.checkOverlap(n)
	}
}

func (d *draft) checkNetworkMTU(n *log.Network) {
	least := uint32(minNetworkMTU)
	if n.Family == "ipv6" {
		least = minNetwork6MTU // Linux switches IPv6 off below
	}
	tag := d.tag(n.NICTag)
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

// checkSubnet reports whether the subnet and family are good enough to judge
// the addresses by.
func (d *draft) checkSubnet(n *log.Network) bool {
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

// lastAddr returns the highest address of a subnet.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}

// usable returns the lowest and the highest address that a NIC may have. The
// network address is none (RFC 4291 section 2.6.1 for IPv6), nor is IPv4's
// broadcast address; subnets of one or two addresses have neither (RFC 3021,
// RFC 6164).
func usable(p netip.Prefix) (first, last netip.Addr) {
	first, last = p.Addr(), lastAddr(p)
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
func (d *draft) place(field string, subnet netip.Prefix, ip netip.Addr) bool {
	why := misplaced(subnet, ip)
	if why != "" {
		first, last := usable(subnet)
		d.bad(field, field+" "+why, fmt.Sprintf("send an address from %s to %s", first, last))
	}
	return why == ""
}

func (d *draft) checkProvisionRange(n *log.Network) {
	bounds := true
	for _, end := range []struct {
		field string
		ip    netip.Addr
	}{{"provision_start_ip", n.ProvisionStart}, {"provision_end_ip", n.ProvisionEnd}} {
		if !end.ip.IsValid() {
			d.missing(end.field, "send an address of the subnet")
			bounds = false
		} else if !d.place(end.field, n.Subnet, end.ip) {
			bounds = false
		}
	}
	if bounds && n.ProvisionEnd.Less(n.ProvisionStart) {
		d.bad("provision_start_ip", "provision_start_ip must be before provision_end_ip", "swap them")
	}
}

func (d *draft) checkGateway(n *log.Network) {
	if n.Gateway.IsValid() {
		d.place("gateway", n.Subnet, n.Gateway)
	} else if n.InternetNAT {
		d.missing("gateway", "a network with internet_nat needs one")
	}
}

func (d *draft) checkResolvers(n *log.Network) {
	if len(n.Resolvers) > MaxResolvers {
		d.bad("resolvers", fmt.Sprintf("there are %d resolvers", len(n.Resolvers)), fmt.Sprintf("name at most %d", MaxResolvers))
	}
	for _, ip := range n.Resolvers {
		if familyOf(ip) != n.Family || ip.Zone() != "" {
			d.bad("resolvers", fmt.Sprintf("resolvers should match subnet type (%s)", n.Family), fmt.Sprintf("leave out %s", ip))
		}
	}
}

func (d *draft) checkRoutes(n *log.Network) {
	if len(n.Routes) > MaxRoutes {
		d.bad("routes", fmt.Sprintf("there are %d routes", len(n.Routes)), fmt.Sprintf("name at most %d", MaxRoutes))
		return
	}
	for i, route := range n.Routes {
		dst, ok := parseDst(route.Dst)
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

func (d *draft) checkFabric(n *log.Network) {
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
	if n.Subnet.IsValid() && !isPrivate(n.Subnet) {
		d.bad("subnet", "subnet must be within private ranges", "send one of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or fc00::/7")
	}
	if n.VNetID == 0 || n.VNetID > log.MaxVNet {
		if len(n.OwnerUUIDs) == 1 || n.VNetID != 0 {
			d.bad("vnet_id", fmt.Sprintf("must be between 1 and %d", log.MaxVNet), "leave it out to have one chosen")
		}
		return
	}
	if len(n.OwnerUUIDs) == 1 {
		d.checkVLANsOn(n.VNetID, n.OwnerUUIDs[0])
	}
	if other := d.fabricOn(n.VNetID); other != nil && other.UUID != n.UUID && !sameOwners(other, n) {
		d.problem(log.FieldError{
			Field: "vnet_id", Code: log.ElementUsedBy, Message: "network owner_uuids do not match: the vnet is another owner's",
			Remedy: "leave vnet_id out to have one chosen", Type: "network", ID: other.ID(),
		})
	}
}

func sameOwners(a, b *log.Network) bool {
	x, y := slices.Clone(a.OwnerUUIDs), slices.Clone(b.OwnerUUIDs)
	slices.SortFunc(x, compareUUIDs)
	slices.SortFunc(y, compareUUIDs)
	return slices.Equal(slices.Compact(x), slices.Compact(y))
}

// checkOverlap looks for a network whose subnet overlaps where it may not. The
// subnets of a group are disjoint, so only the one below and those that begin
// within the subnet can: O(log n).
func (d *draft) checkOverlap(n *log.Network) {
	group, ok := subnetGroup(n)
	if !ok {
		return
	}
	probe := &row{obj: &log.Network{Subnet: netip.PrefixFrom(n.Subnet.Addr(), 0)}, place: placeOfKey(log.KindNetwork, "")}
	near := func(s *store) iter.Seq[*row] {
		return func(yield func(*row) bool) {
			if r, ok := s.subnets[group].below(probe); ok && !yield(r) {
				return
			}
			for r := range s.subnets[group].from(probe) {
				if !n.Subnet.Contains(r.obj.(*log.Network).Subnet.Addr()) || !yield(r) {
					return
				}
			}
		}
	}
	for o := range d.live(near) {
		other := o.(*log.Network)
		if other.UUID != n.UUID && other.Subnet.Overlaps(n.Subnet) {
			d.problem(log.FieldError{
				Field: "subnet", Code: log.ElementUsedBy, Message: "subnet overlaps with another network",
				Remedy: fmt.Sprintf("choose a subnet outside %s", other.Subnet), Type: "network", ID: other.ID(),
			})
			return
		}
	}
}

// checkText bounds a text that may be empty.
func (d *draft) checkText(field, text string) {
	if len(text) > MaxTextBytes {
		d.bad(field, fmt.Sprintf("must not be longer than %d bytes", MaxTextBytes), "shorten it")
	}
}
