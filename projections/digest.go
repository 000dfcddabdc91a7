package projections

import (
	"rutter/log"
)

// digests are the sums of the scopes; scopes without objects have no entry.
// They follow the indexes: what InScope yields is what Digest sums up.
type digests struct {
	sums    map[log.Scope]log.Digest
	whole   log.Digest // see State.Sum
	encoder *log.Encoder
}

func newDigests() *digests {
	return &digests{sums: make(map[log.Scope]log.Digest), encoder: log.NewEncoder()}
}

// Digest returns the sum of the objects of a scope, as InScope yields them.
// Two states agree on a scope if and only if their digests of it are equal, except for
// an accident in 2 to the 128th. It costs one look into a map. A NewPart
// has none.
func (s *State) Digest(scope log.Scope) log.Digest {
	if s.digests == nil {
		return log.Digest{}
	}
	return s.digests.sums[scope]
}

// of returns what a record adds to the digests of its scopes. body is its
// encoded object without the format byte, or nil; id is the object's, or "".
func (d *digests) of(r *Record, body []byte, id string) log.Digest {
	if id == "" {
		id = r.Object.ID()
	}
	if body == nil {
		// What cannot be encoded cannot have come from a log; its revision still counts.
		b, _ := d.encoder.Object(r.Object)
		return log.DigestOf(r.Object.Kind(), id, r.Revision, b)
	}
	return log.DigestOfBody(r.Object.Kind(), id, r.Revision, body)
}

// Sum is a sum over all objects, modulo 2 to the 128th: each adds a hash of its
// id, revision, bytes and the seq of its last event. Two states with equal sums
// hold the same, except for an accident. It costs nothing to ask for.
func (s *State) Sum() log.Digest {
	if s.digests == nil {
		return log.Digest{}
	}
	return s.digests.whole
}

// replace keeps the sum of the whole when rec, with its own sum, takes the
// place of a row; either may be nil.
func (d *digests) replace(old *row, rec *Record, sum log.Digest) {
	if old != nil {
		d.whole = d.whole.Sub(atSeq(old.sum, old.seq))
	}
	if rec != nil {
		d.whole = d.whole.Add(atSeq(sum, rec.Seq))
	}
}

// atSeq mixes the seq into an object's digest, so that seqs which changed
// places show in a sum.
func atSeq(d log.Digest, seq log.Seq) log.Digest {
	n := mix(uint64(seq))
	return log.Digest{Hi: mix(d.Hi ^ n), Lo: mix(d.Lo + n)}
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

// countPacked is count of a NIC that is packed, none of which is an underlay NIC.
func (s *store) countPacked(r *row, p *packedNIC, count func(scope log.Scope, sum log.Digest)) {
	if !p.cn.IsZero() {
		count(log.CNScope(p.cn), r.sum)
	}
	if r.scope != nil {
		count(*r.scope, r.sum)
	}
}

// countNIC is count of a NIC. An underlay NIC is on each vnet of its CN.
func (s *store) countNIC(r *row, nic *log.NIC, count func(scope log.Scope, sum log.Digest)) {
	if !nic.CNUUID.IsZero() {
		count(log.CNScope(nic.CNUUID), r.sum)
	}
	if r.scope != nil {
		count(*r.scope, r.sum)
	}
	if !IsUnderlay(nic) {
		return
	}
	cn := CNOf(nic)
	if cn != nic.CNUUID {
		count(log.CNScope(cn), r.sum)
	}
	for scope := range s.interest.scopes[cn].from(log.VNetScope(0)) {
		if scope.Type != log.ScopeVNet {
			break
		}
		if scope != r.home() {
			count(scope, r.sum)
		}
	}
}

// countUnderlays counts the underlay NICs of a CN in, or out of, a vnet that the CN
// came onto or left.
func (s *store) countUnderlays(cn log.UUID, scope log.Scope, count func(scope log.Scope, sum log.Digest)) {
	if scope.Type != log.ScopeVNet {
		return
	}
	for r := range s.underlays[cn].all() {
		if r.home() != scope {
			count(scope, r.sum)
		}
	}
}
