package projections

import (
	"encoding/binary"
	"iter"
	"math"
	"net/netip"
	"slices"

	"rutter/log"
)

// Address is what is known of one address of a network: by the NIC that has it,
// by its IP object, and by its place in the network.
type Address struct {
	NetworkUUID   log.UUID
	IP            netip.Addr
	Reserved      bool
	BelongsToType string
	BelongsToUUID log.UUID
	OwnerUUID     log.UUID
	// Placeholder says which part of the network the address is that is reserved
	// by that alone (gateway, resolver, network address or broadcast address), or
	// "". If nothing else has it, it belongs to the administrator: BelongsToType is
	// other, and BelongsToUUID and OwnerUUID are left to who knows that.
	Placeholder string
	NIC         log.MAC      // that has the address; zero if none
	Revision    log.Revision // of the IP object; 0 if there is none
}

// Free reports whether nothing has the address and nobody reserved it (NAPI's free).
func (a Address) Free() bool {
	return !a.Reserved && a.BelongsToType == "" && a.BelongsToUUID.IsZero() && a.OwnerUUID.IsZero()
}

// AddressAt returns what is known of an address, which may be free; false if the
// network is not known or its subnet does not contain the address.
func (s *State) AddressAt(network log.UUID, ip netip.Addr) (Address, bool) {
	n := s.network(network)
	if ip = ip.Unmap(); n == nil || !n.Subnet.Contains(ip) {
		return Address{}, false
	}
	return s.address(n, ip), true
}

func (s *State) address(n *log.Network, ip netip.Addr) Address {
	a := Address{NetworkUUID: n.UUID, IP: ip, Placeholder: placeholder(n, ip)}
	if r := s.ipRow(n.UUID, ip); r != nil {
		o := r.obj.(*log.IP)
		a.Reserved, a.BelongsToType, a.BelongsToUUID, a.OwnerUUID, a.Revision = o.Reserved, o.BelongsToType, o.BelongsToUUID, o.OwnerUUID, r.revision
	}
	if r := s.nicAt(n.UUID, ip); r != nil {
		nic := r.nic()
		a.NIC, a.BelongsToType, a.BelongsToUUID = nic.MAC, nic.BelongsToType, nic.BelongsToUUID
		if a.OwnerUUID.IsZero() {
			a.OwnerUUID = nic.OwnerUUID
		}
	}
	if a.Placeholder != "" {
		a.Reserved = true
		if a.BelongsToType == "" {
			a.BelongsToType = "other"
		}
	}
	return a
}

// Addresses yields the addresses of a network that are not free, in their order,
// without the first offset of them. The cost is that of what it yields, and
// O(runs of adjacent addresses) for the offset, whatever the size of the subnet.
func (s *State) Addresses(network log.UUID, offset int) iter.Seq[Address] {
	return func(yield func(Address) bool) {
		n := s.network(network)
		if n == nil {
			return
		}
		for run := range s.runsOf(n) {
			first := run.lo
			if offset > 0 {
				size := sizeOf(run)
				if uint64(offset) >= size {
					offset -= int(size)
					continue
				}
				first = plus(first, uint64(offset))
				offset = 0
			}
			for ip := first; ip.IsValid() && !run.hi.Less(ip); ip = ip.Next() {
				if !yield(s.address(n, ip)) {
					return
				}
			}
		}
	}
}

// runsOf yields the runs of addresses in use and, between them, the placeholders
// that no run has.
func (s *State) runsOf(n *log.Network) iter.Seq[span] {
	used := s.used[n.UUID]
	alone := make([]netip.Addr, 0, len(n.Resolvers)+2)
	take := func(ip netip.Addr) {
		if ip.IsValid() && n.Subnet.Contains(ip) && used.free(ip) == ip {
			alone = append(alone, ip)
		}
	}
	take(n.Gateway)
	for _, ip := range n.Resolvers {
		take(ip)
	}
	if last := lastAddr(n.Subnet); last.Is4() && placeholder(n, last) != "" {
		take(last)
	}
	slices.SortFunc(alone, netip.Addr.Compare)
	alone = slices.Compact(alone)
	return func(yield func(span) bool) {
		if used != nil {
			for run := range used.runs.all() {
				for ; len(alone) > 0 && alone[0].Less(run.lo); alone = alone[1:] {
					if !yield(span{alone[0], alone[0]}) {
						return
					}
				}
				if !yield(run) {
					return
				}
			}
		}
		for _, ip := range alone {
			if !yield(span{ip, ip}) {
				return
			}
		}
	}
}

// sizeOf returns the number of addresses of a run: no state holds more than an
// int can count.
func sizeOf(r span) uint64 {
	lo, hi := r.lo.As16(), r.hi.As16()
	n := binary.BigEndian.Uint64(hi[8:]) - binary.BigEndian.Uint64(lo[8:])
	return min(n, math.MaxInt-1) + 1
}

// plus returns the nth address after ip, in the same run.
func plus(ip netip.Addr, n uint64) netip.Addr {
	b := ip.As16()
	binary.BigEndian.PutUint64(b[8:], binary.BigEndian.Uint64(b[8:])+n)
	sum := netip.AddrFrom16(b)
	if ip.Is4() {
		return sum.Unmap()
	}
	return sum
}

// NICsOwnedBy yields the NICs of an owner, sorted by MAC. The index costs a
// server about 10 bytes for each NIC; a small state has none, and nothing is
// yielded there.
func (s *State) NICsOwnedBy(owner log.UUID) iter.Seq[Record] { return records(s.nicsOwnedBy[owner]) }

// NICsOnTag yields the NICs on a NIC tag: those of its networks, by network, and
// then those without a network that name it; sorted by MAC within each. It needs
// no index of its own.
func (s *State) NICsOnTag(tag string) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for n := range s.netsOnTag[tag].all() {
			for r := range s.nicsOnNet[n.obj.(*log.Network).UUID].all() {
				if !yield(r.record()) {
					return
				}
			}
		}
		for r := range s.nicsOnTag[tag].all() {
			if r.network().IsZero() && r.nic().NICTag == tag && !yield(r.record()) {
				return
			}
		}
	}
}
