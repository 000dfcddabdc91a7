package projections

import (
	"iter"
	"net/netip"

	"rutter/log"
)

// Walk names the records of a list, by the narrowest index that has them. Of
// its fields after Kind at most one is set.
type Walk struct {
	Kind      log.Kind
	BelongsTo log.UUID // NICs by belongs_to_uuid, VMMs by their VM
	Network   log.UUID // NICs by network
	CN        log.UUID // NICs, VMs and VMMs by their CN
	VNet      uint32   // NICs by vnet
	Tag       string   // networks by NIC tag
	Owner     log.UUID // NICs by owner_uuid; none in a small state
	FabricOf  log.UUID // fabric networks, or fabric VLANs, by owner
}

// Walk yields the records of a walk that follow last in the order of their ids,
// or all if last is nil. Last need not be there any more, so that a long list is
// read in slices, between which the state goes on: each object comes once at most.
func (s *State) Walk(w Walk, last log.Object) iter.Seq[Record] {
	set := s.walked(w)
	if last == nil {
		return records(set)
	}
	probe := &row{obj: last, place: placeOf(last)}
	return func(yield func(Record) bool) {
		for r := range set.from(probe) {
			if compareRows(r, probe) != 0 && !yield(r.record()) {
				return
			}
		}
	}
}

func (s *State) walked(w Walk) *sorted[*row] {
	switch {
	case !w.BelongsTo.IsZero() && w.Kind == log.KindVMM:
		return s.vmmsOf[w.BelongsTo]
	case !w.BelongsTo.IsZero():
		return s.nicsOf.of(w.BelongsTo)
	case !w.Network.IsZero():
		return s.nicsOnNet[w.Network]
	case !w.CN.IsZero() && w.Kind == log.KindVM:
		return s.vmsOnCN[w.CN]
	case !w.CN.IsZero() && w.Kind == log.KindVMM:
		return s.vmmsOnCN[w.CN]
	case !w.CN.IsZero():
		return s.nicsOnCN[w.CN]
	case !w.Owner.IsZero():
		return s.nicsOwnedBy[w.Owner]
	case w.VNet != 0:
		return s.nicsOnVNet[w.VNet]
	case w.Tag != "":
		return s.netsOnTag[w.Tag]
	case !w.FabricOf.IsZero() && w.Kind == log.KindFabricVLAN:
		return s.vlansOf[w.FabricOf]
	case !w.FabricOf.IsZero():
		return s.fabricsOf[w.FabricOf]
	}
	return s.tableOrder(w.Kind)
}

// AddressesFrom yields the addresses of a network, from ip on and in order, that
// a NIC has or that have an IP object.
func (s *State) AddressesFrom(network log.UUID, ip netip.Addr) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		used := s.used[network]
		if used == nil {
			return
		}
		from := span{lo: ip}
		if r, ok := used.around(ip); ok {
			from.lo = r.lo // the run that ip may be in
		}
		for r := range used.runs.from(from) {
			at := r.lo
			if at.Less(ip) {
				at = ip
			}
			for ; at.IsValid() && at.Compare(r.hi) <= 0; at = at.Next() {
				if !yield(at) {
					return
				}
			}
		}
	}
}
