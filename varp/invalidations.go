package varp

import (
	"cmp"
	"slices"

	"rutter/log"
)

// invalidationIndex is the newest part of the change log as shootdowns: one for each
// mapping, the last, by vnet and in the order of the log. All nodes read it, so
// that each entry is decoded once however many poll.
//
// ord numbers the shootdowns as they were noted, for this process only. Those
// up to floor may have been left out again, save that of a mapping which nobody
// has any more: the rows of the state tell of all others.
type invalidationIndex struct {
	max int // mappings held at most

	seq    log.Seq // everything up to here was noted, or left out
	ord    uint64
	floor  uint64
	held   map[mapping]uint64 // ord of the last shootdown of each mapping
	byVNet map[uint32]*vnetInvalidations
}

// vnetInvalidations are the shootdowns of one vnet by rising ord. One that a newer has
// replaced stays, and counts as dead, until half of them are dead.
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

// note adds a shootdown in place of an earlier one of the same mapping.
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

// isLive reports whether h is the last shootdown of its mapping.
func (x *invalidationIndex) isLive(h indexedInvalidation) bool { return x.held[h.mapping] == h.ord }

// compact keeps of a vnet's shootdowns those that live and that keep approves of.
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

// leaveOut raises the floor to the newest shootdown: who has not read up to
// here must look at the rows. It takes a number of its own, so that a floor
// without any shootdown below it is one too.
func (x *invalidationIndex) leaveOut() {
	x.ord++
	x.floor = x.ord
}

// skipTo notes that what lies between x.seq and seq is not to be had.
func (x *invalidationIndex) skipTo(seq log.Seq) {
	x.seq = seq
	x.leaveOut()
}

// trim makes place when there are more than max: the older half goes, first
// what the rows tell of as well, then, if that is too little, everything else.
func (x *invalidationIndex) trim(rows Rows) {
	if len(x.held) <= x.max {
		return
	}
	ords := make([]uint64, 0, len(x.held))
	for _, ord := range x.held {
		ords = append(ords, ord)
	}
	slices.Sort(ords)
	x.floor = max(x.floor, ords[len(ords)/2])
	x.compactAll(func(h indexedInvalidation) bool { return h.ord > x.floor || !h.known(rows) })
	if len(x.held) > x.max*3/4 {
		x.compactAll(func(h indexedInvalidation) bool { return h.ord > x.floor })
	}
}

func (x *invalidationIndex) compactAll(keep func(indexedInvalidation) bool) {
	for vnet := range x.byVNet {
		x.compact(vnet, keep)
	}
}

// after returns a vnet's shootdowns of a higher ord, those that no longer live
// among them.
func (x *invalidationIndex) after(vnet uint32, ord uint64) []indexedInvalidation {
	v := x.byVNet[vnet]
	if v == nil {
		return nil
	}
	i, _ := slices.BinarySearchFunc(v.shots, ord+1, func(h indexedInvalidation, ord uint64) int { return cmp.Compare(h.ord, ord) })
	return v.shots[i:]
}
