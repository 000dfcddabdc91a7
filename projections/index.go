package projections

import (
	"iter"
	"net/netip"
	"slices"

	"rutter/log"
)

// publicSubnets is the group of the networks whose subnets are public. No
// fabric has vnet 0, so the number is free.
const publicSubnets = 0

// subnetGroup returns the group of networks whose subnets may not overlap with
// n's: its vnet, or all public ones; ok is false for private subnets outside
// fabrics, which may (spec/napi.md section 3.4).
func subnetGroup(n *log.Network) (group uint32, ok bool) {
	if n.Fabric {
		return n.VNetID, true
	}
	return publicSubnets, !IsPrivate(n.Subnet)
}

// IsPrivate reports whether all of a subnet is of RFC 1918 or RFC 4193 (ULA).
func IsPrivate(subnet netip.Prefix) bool {
	return subnet.Addr().IsPrivate() && LastAddr(subnet).IsPrivate()
}

func compareSubnets(a, b *row) int {
	x, y := a.obj.(*log.Network), b.obj.(*log.Network)
	if c := x.Subnet.Addr().Compare(y.Subnet.Addr()); c != 0 {
		return c
	}
	if c := x.Subnet.Bits() - y.Subnet.Bits(); c != 0 {
		return c
	}
	return compareRows(a, b) // a cache may hold two of a subnet for a moment
}

// sameIndex reports whether two states of one object stand in the same places
// of every index, so that the second can take the first's place.
func sameIndex(a, b log.Object) bool {
	k := keptAs(a.Kind())
	if k.same == nil {
		return k.places == nil
	}
	return k.same(a, b)
}

// sameButCN is sameIndex but for the index by CN.
func sameButCN(a, b *log.NIC) bool {
	return a.NetworkUUID == b.NetworkUUID && a.IP == b.IP && a.OwnerUUID == b.OwnerUUID &&
		a.BelongsToUUID == b.BelongsToUUID && a.BelongsToType == b.BelongsToType && a.Underlay == b.Underlay &&
		a.NICTag == b.NICTag && slices.Equal(a.NICTagsProvided, b.NICTagsProvided)
}

// moves reports whether a NIC changes its CN and no other index: a migration.
func moves(before, after log.Object) bool {
	a, ok := before.(*log.NIC)
	if !ok || IsUnderlay(a) {
		return false
	}
	b, ok := after.(*log.NIC)
	return ok && sameButCN(a, b)
}

// move puts rec, whose sum is given, in the place of r's record, which it moves.
func (s *store) move(r *row, rec Record, sum log.Digest) {
	if s.digests != nil {
		s.count(r, s.digests.remove)
	}
	s.leaveCN(r, r.cnUUID())
	s.set(r, rec, sum)
	s.joinCN(r, r.cnUUID())
	if s.digests != nil {
		s.count(r, s.digests.add)
	}
}

func (s *store) joinCN(r *row, cn log.UUID) {
	addSet(s.nicsOnCN, cn, r)
	if s.interest != nil && r.scope != nil && !cn.IsZero() {
		if s.interest.add(cn, *r.scope) && s.digests != nil {
			s.countUnderlays(cn, *r.scope, s.digests.add)
		}
	}
}

func (s *store) leaveCN(r *row, cn log.UUID) {
	s.nicsOnCN.remove(cn, r)
	if s.interest != nil && r.scope != nil && !cn.IsZero() {
		if s.interest.remove(cn, *r.scope) && s.digests != nil {
			s.countUnderlays(cn, *r.scope, s.digests.remove)
		}
	}
}

func (s *store) index(r *row) {
	if k := keptAs(r.kind()); k.places != nil {
		k.places(s, r.object(), placing{r, true})
	}
	if s.digests != nil {
		s.count(r, s.digests.add)
	}
}

func (s *store) unindex(r *row) {
	if s.digests != nil {
		s.count(r, s.digests.remove)
	}
	if k := keptAs(r.kind()); k.places != nil {
		k.places(s, r.object(), placing{r, false})
	}
}

// addSet adds r under a UUID that is set.
func addSet(s sets[log.UUID], k log.UUID, r *row) {
	if !k.IsZero() {
		s.add(k, r, compareRows)
	}
}

func (s *store) indexNIC(r *row, nic *log.NIC) {
	r.scope = s.homeOn(nic.NetworkUUID)
	for _, tag := range tagsOf(nic) {
		s.nicsOnTag.add(tag, r, compareRows)
	}
	addSet(s.nicsOnNet, nic.NetworkUUID, r)
	s.nicsOf.add(nic.BelongsToUUID, r)
	if s.shapes == nil && s.under == nil {
		addSet(s.nicsOwnedBy, nic.OwnerUUID, r)
	}
	if IsUnderlay(nic) {
		addSet(s.underlays, CNOf(nic), r)
	}
	if nic.IP.IsValid() && !nic.NetworkUUID.IsZero() {
		s.ips.put(r, hasIP(nic.NetworkUUID, nic.IP))
		s.use(nic.NetworkUUID, nic.IP)
	}
	if home := r.home(); home.Type == log.ScopeVNet {
		s.nicsOnVNet.add(home.VNet, r, compareRows)
		if nic.IP.IsValid() {
			s.vl3.put(r, hasVL3(home.VNet, nic.IP))
		}
	}
	s.joinCN(r, nic.CNUUID)
}

// tagsOf returns the NIC tags that a NIC names itself, not through its network.
func tagsOf(nic *log.NIC) []string {
	if nic.NICTag == "" {
		return nic.NICTagsProvided
	}
	return append([]string{nic.NICTag}, nic.NICTagsProvided...)
}

func (s *store) unindexNIC(r *row, nic *log.NIC) {
	for _, tag := range tagsOf(nic) {
		s.nicsOnTag.remove(tag, r)
	}
	s.nicsOnNet.remove(nic.NetworkUUID, r)
	s.nicsOf.remove(nic.BelongsToUUID, r)
	s.nicsOwnedBy.remove(nic.OwnerUUID, r)
	s.underlays.remove(CNOf(nic), r)
	// In a cache an address may have gone to another NIC before this one left.
	if s.ips.remove(r) {
		s.release(nic.NetworkUUID, nic.IP)
	}
	if home := r.home(); home.Type == log.ScopeVNet {
		s.nicsOnVNet.remove(home.VNet, r)
		s.vl3.remove(r)
	}
	s.leaveCN(r, nic.CNUUID)
	r.scope = nil
}

func (s *store) use(network log.UUID, ip netip.Addr) {
	used := s.used[network]
	if used == nil {
		used = newSpans()
		s.used[network] = used
	}
	used.add(ip)
}

func (s *store) release(network log.UUID, ip netip.Addr) {
	if s.ipRow(network, ip) != nil || s.nicAt(network, ip) != nil {
		return // something else holds it still
	}
	used := s.used[network]
	used.remove(ip)
	if used.runs.len() == 0 {
		delete(s.used, network)
	}
}

// zone yields the VMs with a zonename, in order. Nearly every VM is named as its
// UUID, and is found by that: an index of these would be as long as their table.
func (s *store) zone(name string) iter.Seq[*row] {
	return func(yield func(*row) bool) {
		var own *row
		if uuid, err := log.ParseUUID(name); err == nil && uuid.Is(name) {
			own = s.row(log.KindVM, string(uuid[:]))
		}
		if own != nil && own.obj.(*log.VM).Zonename != name {
			own = nil // it has another
		}
		for r := range s.zones[name].all() {
			if own != nil && compareRows(own, r) < 0 {
				if !yield(own) {
					return
				}
				own = nil
			}
			if !yield(r) {
				return
			}
		}
		if own != nil {
			yield(own)
		}
	}
}

// LastAddr returns the highest address of a subnet.
func LastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}

// ParseRouteDst reads a route's destination: an address, or a subnet without host bits.
func ParseRouteDst(text string) (netip.Prefix, bool) {
	if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" {
		ip = ip.Unmap()
		return netip.PrefixFrom(ip, ip.BitLen()), true
	}
	p, err := netip.ParsePrefix(text)
	return p, err == nil && p.Masked() == p && !p.Addr().Is4In6()
}

// line is what tickets wait for.
type line struct {
	cn        log.UUID
	scope, id string
}

func lineOf(t *log.Ticket) line { return line{t.ServerUUID, t.Scope, t.OfID} }
