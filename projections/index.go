package projections

import (
	"net/netip"

	"rutter/log"
)

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
