package rules

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// allocatedBits is the prefix length of the subnets that servers choose: NAPI's only one.
const allocatedBits = 24

// privateRanges are what subnets are chosen from, in that order: NAPI's, RFC 1918.
var privateRanges = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
}

// allocateSubnet gives a new fabric network that asks for it a subnet that is free on its
// vnet. The cost is O(n log n) in the networks of the vnet.
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

// freeSubnet chooses a subnet that overlaps none on a vnet, as NAPI does: the lowest behind
// another network that has one above it; else below the lowest; else above the highest. Of
// one network, above comes before below. The first of a vnet is 10.0.0.0/24.
func freeSubnet(d *draft, vnet uint32) (netip.Prefix, bool) {
	var taken []blocks
	for o := range d.Objects(projections.FabricsOnVNet(vnet)) {
		if b, ok := blocksOf(o.(*log.Network).Subnet); ok {
			taken = append(taken, b)
		}
	}
	slices.SortFunc(taken, func(a, b blocks) int { return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last)) })
	if len(taken) == 0 {
		return block(0)
	}
	last := taken[0].last
	for _, b := range taken[1:] {
		if last+1 < b.first {
			return block(last + 1)
		}
		last = max(last, b.last)
	}
	tries := []int{taken[0].first - 1, last + 1}
	if len(taken) == 1 {
		slices.Reverse(tries)
	}
	for _, at := range tries {
		if subnet, ok := block(at); ok {
			return subnet, true
		}
	}
	return netip.Prefix{}, false
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
