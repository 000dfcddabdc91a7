package varp

import (
	"cmp"
	"slices"

	"rutter/log"
	"rutter/varp/internal/spans"
)

// invalidationIndex has the newest part of the change log as invalidations: for each
// mapping the last one, by vnet and in the order of the log. All nodes read it, so each
// entry is decoded once however many clients poll.
//
// ord numbers the invalidations in this process. Those up to floor may have been
// removed, except that of a mapping that no longer exists, because the rows of the
// state show all others. What changed after floorSeq is above floor.
type invalidationIndex struct {
	max int // mappings held at most

	seq      log.Seq // everything up to here was noted, or skipped
	ord      uint64
	floor    uint64
	floorSeq log.Seq
	held     map[mapping]uint64 // ord of the last shootdown of each mapping
	byVNet   map[uint32]*vnetInvalidations
}

// vnetInvalidations are the invalidations of one vnet by rising ord. A replaced one
// stays, counted as dead, until half of them are dead.
type vnetInvalidations struct {
	shots []indexedInvalidation
	dead  int
}

type indexedInvalidation struct {
	invalidation
	ord uint64
}

func newInvalidationIndex(limit int, seq log.Seq) *invalidationIndex {
	x := &invalidationIndex{max: limit, seq: seq, held: make(map[mapping]uint64), byVNet: make(map[uint32]*vnetInvalidations)}
	if seq > 0 {
		x.leaveOut()
	}
	return x
}

// note adds an invalidation in place of an earlier one of the same mapping.
func (x *invalidationIndex) note(s invalidation) {
	v := x.byVNet[s.vnet]
	if v == nil {
		v = new(vnetInvalidations)
		x.byVNet[s.vnet] = v
	}
	if _, again := x.held[s.mapping]; again {
		v.dead++
	}
	x.ord++
	x.held[s.mapping] = x.ord
	v.shots = append(v.shots, indexedInvalidation{s, x.ord})
	if v.dead > 32 && v.dead > len(v.shots)/2 {
		x.compact(s.vnet, func(indexedInvalidation) bool { return true })
	}
}

// isLive reports whether h is the last invalidation of its mapping.
func (x *invalidationIndex) isLive(h indexedInvalidation) bool { return x.held[h.mapping] == h.ord }

// compact keeps those of a vnet's invalidations that are live and accepted by keep.
func (x *invalidationIndex) compact(vnet uint32, keep func(indexedInvalidation) bool) {
	v := x.byVNet[vnet]
	v.shots = slices.DeleteFunc(v.shots, func(h indexedInvalidation) bool {
		switch {
		case !x.isLive(h):
			return true
		case keep(h):
			return false
		}
		delete(x.held, h.mapping)
		return true
	})
	v.dead = 0
	if len(v.shots) == 0 {
		delete(x.byVNet, vnet)
	}
}

// leaveOut raises the floor to the newest invalidation: a node that has not read up to
// here must read the rows. It takes an ord of its own, so that a floor without any
// invalidation below it is valid.
func (x *invalidationIndex) leaveOut() {
	x.ord++
	x.floor, x.floorSeq = x.ord, x.seq
}

// skipTo records that the entries between x.seq and seq are not available.
func (x *invalidationIndex) skipTo(seq log.Seq) {
	x.seq = seq
	x.leaveOut()
}

// trim makes room when there are more than max: it removes from the older half first
// what the rows show as well, then, if that is too little, everything.
func (x *invalidationIndex) trim(rows Rows) {
	if len(x.held) <= x.max {
		return
	}
	ords := make([]uint64, 0, len(x.held))
	for _, ord := range x.held {
		ords = append(ords, ord)
	}
	slices.Sort(ords)
	x.raiseFloor(ords[len(ords)/2])
	x.compactAll(func(h indexedInvalidation) bool { return h.ord > x.floor || !h.known(rows) })
	if len(x.held) > x.max*3/4 {
		x.compactAll(func(h indexedInvalidation) bool { return h.ord > x.floor })
	}
}

// raiseFloor raises the floor to ord, and floorSeq to the last change up to there.
func (x *invalidationIndex) raiseFloor(ord uint64) {
	if ord <= x.floor {
		return
	}
	x.floor = ord
	for _, v := range x.byVNet {
		if i := v.after(ord); i > 0 {
			x.floorSeq = max(x.floorSeq, v.shots[i-1].seq)
		}
	}
}

func (x *invalidationIndex) compactAll(keep func(indexedInvalidation) bool) {
	for vnet := range x.byVNet {
		x.compact(vnet, keep)
	}
}

// after returns where the invalidations of a higher ord begin.
func (v *vnetInvalidations) after(ord uint64) int {
	i, _ := slices.BinarySearchFunc(v.shots, ord+1, func(h indexedInvalidation, ord uint64) int { return cmp.Compare(h.ord, ord) })
	return i
}

// last returns the highest ord of a vnet's invalidations, 0 if it has none.
func (x *invalidationIndex) last(vnet uint32) uint64 {
	v := x.byVNet[vnet]
	if v == nil || len(v.shots) == 0 {
		return 0
	}
	return v.shots[len(v.shots)-1].ord
}

// ordAt returns an ord at or above those of a vnet's invalidations up to seq, and below
// those of later ones.
func (x *invalidationIndex) ordAt(vnet uint32, seq log.Seq) uint64 {
	v := x.byVNet[vnet]
	if v == nil {
		return x.floor
	}
	i, _ := slices.BinarySearchFunc(v.shots, seq+1, func(h indexedInvalidation, seq log.Seq) int { return cmp.Compare(h.seq, seq) })
	if i == 0 {
		return min(x.floor, v.shots[0].ord-1)
	}
	return v.shots[i-1].ord
}

// find returns the live invalidation of a mapping.
func (x *invalidationIndex) find(m mapping) (indexedInvalidation, bool) {
	ord, ok := x.held[m]
	if !ok {
		return indexedInvalidation{}, false
	}
	v := x.byVNet[m.vnet]
	return v.shots[v.after(ord)-1], true
}

// newest returns up to n live invalidations of a vnet with an ord in set, the newest
// first. all: there are no others.
func (x *invalidationIndex) newest(vnet uint32, set *spans.Set, n int) (found []indexedInvalidation, all bool) {
	v := x.byVNet[vnet]
	if v == nil {
		return nil, true
	}
	for _, p := range slices.Backward(set.Spans()) {
		for _, h := range slices.Backward(v.shots[v.after(p.Lo):v.after(p.Hi)]) {
			if !x.isLive(h) {
				continue
			}
			if len(found) == n {
				return found, false
			}
			found = append(found, h)
		}
	}
	return found, true
}

// oldest is newest with the oldest first.
func (x *invalidationIndex) oldest(vnet uint32, set *spans.Set, n int) (found []indexedInvalidation) {
	v := x.byVNet[vnet]
	if v == nil {
		return nil
	}
	for _, p := range set.Spans() {
		for _, h := range v.shots[v.after(p.Lo):v.after(p.Hi)] {
			if !x.isLive(h) {
				continue
			}
			if len(found) == n {
				return found
			}
			found = append(found, h)
		}
	}
	return found
}
