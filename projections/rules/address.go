package rules

import (
	"cmp"
	"encoding/binary"
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
	says := saysMore(after)
	switch {
	case !says && before.Object != nil:
		d.emit(before, nil)
	case says && (before.Object == nil || !log.Equal(before.Object, after)):
		d.emit(before, after)
	}
}

// keepLabels gives an address that something else takes the labels that it had.
func keepLabels(d *draft, before projections.Record, after *log.IP) {
	if was, there := before.Object.(*log.IP); there && declared(d) {
		after.Labels = was.Labels
	}
}

// saysMore reports whether an address says something that is kept, its labels apart.
func saysMore(o *log.IP) bool {
	return o.Reserved || o.BelongsToType != "" || !o.BelongsToUUID.IsZero() || !o.OwnerUUID.IsZero()
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

// allocatedBits is the prefix length of the subnets that servers choose: NAPI's only one.
const allocatedBits = 24

// privateRanges are what subnets are chosen from, in that order: NAPI's, RFC 1918.
var privateRanges = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
}

// allocateSubnet gives a new fabric network that asks for it a subnet that is free on its
// vnet. A change reads the networks of each vnet once, however many operations ask.
func allocateSubnet(d *draft, n *log.Network, op *log.Op) {
	if !asks(op, log.OptionAllocateSubnet) {
		return
	}
	for _, manual := range []struct {
		field string
		set   bool
	}{{"provision_end_ip", n.ProvisionEnd.IsValid()}, {"provision_start_ip", n.ProvisionStart.IsValid()}} {
		if manual.set {
			d.bad(manual.field, "Manual allocation parameter not allowed", "leave it out: it follows from the subnet that is chosen")
		}
	}
	switch {
	case !n.Fabric:
		d.bad("subnet", "only subnets of fabric networks are chosen", "send a subnet")
	case !n.Subnet.IsValid() || n.Subnet.Addr() != netip.IPv4Unspecified():
		d.bad("subnet", "Manual allocation parameter not allowed", "send 0.0.0.0/24 to have a subnet chosen")
	case n.Subnet.Bits() != allocatedBits:
		d.bad("subnet_prefix", "Only /24 is supported", "send 24")
	}
	settleVNet(d, n, op)
	if d.refused() || n.VNetID == 0 {
		return
	}
	subnet, ok := freeSubnet(d, n.VNetID)
	if !ok {
		d.refuse(log.CodeSubnetsExhausted, "no more free subnets", log.FieldError{
			Field: "subnet_prefix", Code: log.ElementInvalid, Message: "every private subnet is in use on the vnet",
			Remedy: "delete networks that are not needed, or name a smaller subnet that is free",
		})
		return
	}
	n.Subnet = subnet
}

// blocks are subnets of allocatedBits, by their places in privateRanges one after another.
type blocks struct{ first, last int }

func (a blocks) compare(b blocks) int {
	return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last))
}

// vnetBlocks are the blocks that the networks of a vnet have, as a draft remembers them.
type vnetBlocks struct {
	taken []blocks // sorted
	// Of the first run of taken there is no block free between two, and last is the highest
	// of them. So a change that asks again and again looks at each network once.
	run, last int
}

func (t *vnetBlocks) add(b blocks) {
	at, _ := slices.BinarySearchFunc(t.taken, b, blocks.compare)
	t.taken = slices.Insert(t.taken, at, b)
	if at < t.run {
		t.run = 0 // at its end it goes on
	}
}

func (t *vnetBlocks) remove(b blocks) {
	if at, found := slices.BinarySearchFunc(t.taken, b, blocks.compare); found {
		t.taken = slices.Delete(t.taken, at, at+1)
		t.run = 0
	}
}

// free chooses a block as NAPI does: the lowest behind another network that has one above
// it; else below the lowest; else above the highest. Of one network, above comes before
// below. The first of a vnet is 10.0.0.0/24.
func (t *vnetBlocks) free() (netip.Prefix, bool) {
	if len(t.taken) == 0 {
		return block(0)
	}
	if t.run == 0 {
		t.run, t.last = 1, t.taken[0].last
	}
	for ; t.run < len(t.taken); t.run++ {
		b := t.taken[t.run]
		if t.last+1 < b.first {
			return block(t.last + 1)
		}
		t.last = max(t.last, b.last)
	}
	tries := []int{t.taken[0].first - 1, t.last + 1}
	if len(t.taken) == 1 {
		slices.Reverse(tries)
	}
	for _, at := range tries {
		if subnet, ok := block(at); ok {
			return subnet, true
		}
	}
	return netip.Prefix{}, false
}

// freeSubnet chooses a subnet that overlaps none on a vnet (vnetBlocks.free).
func freeSubnet(d *draft, vnet uint32) (netip.Prefix, bool) {
	t := d.vnets[vnet]
	if t == nil {
		t = new(vnetBlocks)
		for o := range d.Objects(projections.FabricsOnVNet(vnet)) {
			if b, ok := blocksOf(o.(*log.Network).Subnet); ok {
				t.taken = append(t.taken, b)
			}
		}
		slices.SortFunc(t.taken, blocks.compare) // they come nearly in this order
		if d.vnets == nil {
			d.vnets = map[uint32]*vnetBlocks{}
		}
		d.vnets[vnet] = t
	}
	return t.free()
}

// followBlocks keeps what the draft remembers of vnets in line with an event; was and is are
// nil where there is no object.
func followBlocks(d *draft, was, is log.Object) {
	if n, ok := was.(*log.Network); ok && n.Fabric && d.vnets[n.VNetID] != nil {
		if b, ok := blocksOf(n.Subnet); ok {
			d.vnets[n.VNetID].remove(b)
		}
	}
	if n, ok := is.(*log.Network); ok && n.Fabric && d.vnets[n.VNetID] != nil {
		if b, ok := blocksOf(n.Subnet); ok {
			d.vnets[n.VNetID].add(b)
		}
	}
}

// blocksOf returns which blocks a subnet has addresses of; false if none.
func blocksOf(p netip.Prefix) (b blocks, ok bool) {
	place := 0
	for _, r := range privateRanges {
		if p.Overlaps(r) {
			if p.Bits() < r.Bits() {
				p = r
			}
			at := func(ip netip.Addr) int { return place + int(numberOf(ip)-numberOf(r.Addr()))>>(32-allocatedBits) }
			return blocks{at(p.Addr()), at(projections.LastAddr(p))}, true
		}
		place += 1 << (allocatedBits - r.Bits())
	}
	return b, false
}

// block returns the subnet at a place; false if there is none.
func block(place int) (netip.Prefix, bool) {
	for _, r := range privateRanges {
		n := 1 << (allocatedBits - r.Bits())
		if place >= 0 && place < n {
			var b [4]byte
			binary.BigEndian.PutUint32(b[:], numberOf(r.Addr())+uint32(place)<<(32-allocatedBits))
			return netip.PrefixFrom(netip.AddrFrom4(b), allocatedBits), true
		}
		place -= n
	}
	return netip.Prefix{}, false
}

// numberOf is an IPv4 address as a number.
func numberOf(ip netip.Addr) uint32 {
	b := ip.As4()
	return binary.BigEndian.Uint32(b[:])
}
