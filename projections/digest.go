package projections

import (
	"rutter/log"
)

// digests are the sums of the scopes; scopes without objects have no entry.
// They follow the indexes: what InScope yields is what Digest sums up.
type digests struct {
	sums    map[log.Scope]log.Digest
	encoder *log.Encoder
}

func newDigests() *digests {
	return &digests{sums: make(map[log.Scope]log.Digest), encoder: log.NewEncoder()}
}

// Digest returns the sum of the objects of a scope, as InScope yields them.
// Two states agree on a scope if and only if, but for an accident in 2 to the
// 128th, their digests of it are equal. It costs one look into a map.
func (s *State) Digest(scope log.Scope) log.Digest { return s.digests.sums[scope] }

// of returns what a record adds to the digests of its scopes.
func (d *digests) of(r *Record) log.Digest {
	if _, unknown := r.Object.(*log.Unknown); unknown {
		return log.Digest{} // it is in no scope
	}
	// What cannot be encoded cannot have come from a log; its revision still counts.
	b, _ := d.encoder.Object(r.Object)
	return log.DigestOf(r.Object.Kind(), r.Object.ID(), r.Revision, b)
}

func (d *digests) add(scope log.Scope, sum log.Digest) {
	d.set(scope, d.sums[scope].Add(sum))
}

func (d *digests) remove(scope log.Scope, sum log.Digest) {
	d.set(scope, d.sums[scope].Sub(sum))
}

func (d *digests) set(scope log.Scope, sum log.Digest) {
	if sum == (log.Digest{}) {
		delete(d.sums, scope)
		return
	}
	d.sums[scope] = sum
}

// count has a row counted in, or out of, the digests of its scopes as they are now.
func (s *store) count(r *row, count func(scope log.Scope, sum log.Digest)) {
	switch o := r.Object.(type) {
	case *log.NICTag:
		count(log.AllScope(), r.sum)
	case *log.Server:
		count(log.CNScope(o.UUID), r.sum)
	case *log.VM:
		if !o.ServerUUID.IsZero() {
			count(log.CNScope(o.ServerUUID), r.sum)
		}
	case *log.VMM:
		if !o.SledID.IsZero() {
			count(log.CNScope(o.SledID), r.sum)
		}
	case *log.Network:
		count(scopeOfNetwork(o), r.sum)
	case *log.NIC:
		s.countNIC(r, o, count)
	}
}

// countNIC is count of a NIC. An underlay NIC is on each vnet of its CN.
func (s *store) countNIC(r *row, nic *log.NIC, count func(scope log.Scope, sum log.Digest)) {
	if !nic.CNUUID.IsZero() {
		count(log.CNScope(nic.CNUUID), r.sum)
	}
	if r.scope.Type != 0 {
		count(r.scope, r.sum)
	}
	if !isUnderlay(nic) {
		return
	}
	cn := cnOf(nic)
	if cn != nic.CNUUID {
		count(log.CNScope(cn), r.sum)
	}
	for scope := range s.interest.scopes[cn].from(log.VNetScope(0)) {
		if scope.Type != log.ScopeVNet {
			break
		}
		if scope != r.scope {
			count(scope, r.sum)
		}
	}
}

// countUnderlays has the underlay NICs of a CN counted in, or out of, a vnet that
// the CN came onto or left.
func (s *store) countUnderlays(cn log.UUID, scope log.Scope, count func(scope log.Scope, sum log.Digest)) {
	if scope.Type != log.ScopeVNet {
		return
	}
	for r := range s.underlays[cn].all() {
		if r.scope != scope {
			count(scope, r.sum)
		}
	}
}
