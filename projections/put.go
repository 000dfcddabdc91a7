package projections

import "rutter/log"

// put places a record, over the one of the same id if there is one. body, if
// not nil, is the object as log.Encoder.EventAndBody gives it.
func (s *store) put(rec Record, body []byte) { s.putOver(s.rowOfObject(rec.Object), rec, body, "") }

// putOver is put over a row, which is nil if there is none, of a record whose id may be
// given.
func (s *store) putOver(r *row, rec Record, body []byte, id string) {
	kind := rec.Object.Kind()
	t := s.table(kind)
	if t == nil {
		if grow := int(kind) + 1 - len(s.tables); grow > 0 {
			s.tables = append(s.tables, make([]*table, grow)...)
		}
		t = &table{rows: rowTable{hash: hashRow}, order: newSorted(compareRows)}
		s.tables[kind] = t
	}
	var sum log.Digest
	if s.digests != nil {
		sum = s.digests.of(&rec, body, id)
		s.digests.replace(r, &rec, sum)
	}
	if r == nil {
		r = &row{}
		s.set(r, rec, sum)
		t.rows.add(r)
		t.order.insert(r)
		s.index(r)
	} else {
		s.change(r, rec, sum)
	}
	if network, ok := rec.Object.(*log.Network); ok {
		s.rehome(network.UUID)
	}
}

// change puts a record, whose sum is given, in the place of r's.
func (s *store) change(r *row, rec Record, sum log.Digest) {
	switch before := r.object(); {
	case sameIndex(before, rec.Object):
		if s.digests != nil {
			s.count(r, s.digests.remove)
		}
		s.set(r, rec, sum)
		if s.digests != nil {
			s.count(r, s.digests.add)
		}
	case moves(before, rec.Object):
		s.move(r, rec, sum)
	default:
		s.unindex(r)
		s.set(r, rec, sum)
		s.index(r)
	}
}

// remove takes the row out.
func (s *store) remove(r *row) {
	t := s.table(r.kind())
	if s.digests != nil {
		s.digests.replace(r, nil, log.Digest{})
	}
	t.rows.remove(r)
	t.order.remove(r)
	s.unindex(r)
	if p, ok := r.obj.(*packedNIC); ok {
		s.shapes.drop(p.shape)
	}
	if network, ok := r.obj.(*log.Network); ok {
		s.rehome(network.UUID)
	}
}

// rehome puts a network's NICs where the network now lies. In a log a network
// comes before its NICs and goes after them; in a cache either may come first.
func (s *store) rehome(network log.UUID) {
	home := s.homeOn(network)
	var moved []*row
	for r := range s.nicsOnNet[network].all() {
		if r.scope == home {
			break // they are all of one scope
		}
		moved = append(moved, r)
	}
	for _, r := range moved {
		s.unindex(r)
		s.index(r)
	}
}

// sameIndex reports whether two states of one object stand in the same places
// of every index, so that the second can take the first's place.
func sameIndex(a, b log.Object) bool {
	if !sameDeclared(a, b) || PlainName(a) != PlainName(b) {
		return false
	}
	k := keptAs(a.Kind())
	if k.same == nil {
		return k.places == nil
	}
	return k.same(a, b)
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

func (s *store) index(r *row) {
	if k := keptAs(r.kind()); k.places != nil {
		k.places(s, r.object(), placing{r, true})
	}
	s.placeDeclared(placing{r, true})
	s.placeName(placing{r, true})
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
	s.placeDeclared(placing{r, false})
	s.placeName(placing{r, false})
}

// count counts a row in, or out of, the digests of its scopes as they are now.
func (s *store) count(r *row, count func(scope log.Scope, sum log.Digest)) {
	switch o := r.obj.(type) {
	case *packedNIC:
		s.countPacked(r, o, count)
		return
	case *log.NIC:
		s.countNIC(r, o, count)
		return
	}
	if scope := log.ScopeOf(r.object()); scope.Type != 0 {
		count(scope, r.sum)
	}
	if k := keptAs(r.kind()); k.scopes != nil {
		for _, scope := range k.scopes(r.object()) {
			count(scope, r.sum)
		}
	}
}
