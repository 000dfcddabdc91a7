package varp

import (
	"cmp"
	"slices"

	"rutter/log"
)

// shotIndex is the newest part of the change log as shootdowns: one for each
// mapping, the last, by vnet and in the order of the log. All nodes read it, so
// that each entry is decoded once however many poll.
//
// ord numbers the shootdowns as they were noted, for this process only. Those
// up to floor may have been left out again, save that of a mapping which nobody
// has any more: the rows of the state tell of all others.
type shotIndex struct {
	max int // mappings held at most

	seq    log.Seq // everything up to here was noted, or left out
	ord    uint64
	floor  uint64
	held   map[mapping]uint64 // ord of the last shootdown of each mapping
	byVNet map[uint32]*vnetShots
}

// vnetShots are the shootdowns of one vnet by rising ord. One that a newer has
// replaced stays, and counts as dead, until half of them are dead.
type vnetShots struct {
	shots []heldShot
	dead  int
}

type heldShot struct {
	shot
	ord uint64
}

func newShotIndex(limit int, seq log.Seq) *shotIndex {
	x := &shotIndex{max: limit, seq: seq, held: make(map[mapping]uint64), byVNet: make(map[uint32]*vnetShots)}
	if seq > 0 {
		x.leaveOut()
	}
	return x
}

// note adds a shootdown in place of an earlier one of the same mapping.
func (x *shotIndex) note(s shot) {
	v := x.byVNet[s.vnet]
	if v == nil {
		v = new(vnetShots)
		x.byVNet[s.vnet] = v
	}
	if _, again := x.held[s.mapping]; again {
		v.dead++
	}
	x.ord++
	x.held[s.mapping] = x.ord
	v.shots = append(v.shots, heldShot{s, x.ord})
	if v.dead > 32 && v.dead > len(v.shots)/2 {
		x.tidy(s.vnet, func(heldShot) bool { return true })
	}
}

// lives reports whether h is the last shootdown of its mapping.
func (x *shotIndex) lives(h heldShot) bool { return x.held[h.mapping] == h.ord }

// tidy keeps of a vnet's shootdowns those that live and that keep approves of.
func (x *shotIndex) tidy(vnet uint32, keep func(heldShot) bool) {
	v := x.byVNet[vnet]
	v.shots = slices.DeleteFunc(v.shots, func(h heldShot) bool {
		switch {
		case !x.lives(h):
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
func (x *shotIndex) leaveOut() {
	x.ord++
	x.floor = x.ord
}

// jump notes that what lies between x.seq and seq is not to be had.
func (x *shotIndex) jump(seq log.Seq) {
	x.seq = seq
	x.leaveOut()
}

// trim makes place when there are more than max: the older half goes, first
// what the rows tell of as well, then, if that is too little, everything else.
func (x *shotIndex) trim(rows Rows) {
	if len(x.held) <= x.max {
		return
	}
	ords := make([]uint64, 0, len(x.held))
	for _, ord := range x.held {
		ords = append(ords, ord)
	}
	slices.Sort(ords)
	x.floor = max(x.floor, ords[len(ords)/2])
	x.tidyAll(func(h heldShot) bool { return h.ord > x.floor || !h.known(rows) })
	if len(x.held) > x.max*3/4 {
		x.tidyAll(func(h heldShot) bool { return h.ord > x.floor })
	}
}

func (x *shotIndex) tidyAll(keep func(heldShot) bool) {
	for vnet := range x.byVNet {
		x.tidy(vnet, keep)
	}
}

// after returns a vnet's shootdowns of a higher ord, those that no longer live
// among them.
func (x *shotIndex) after(vnet uint32, ord uint64) []heldShot {
	v := x.byVNet[vnet]
	if v == nil {
		return nil
	}
	i, _ := slices.BinarySearchFunc(v.shots, ord+1, func(h heldShot, ord uint64) int { return cmp.Compare(h.ord, ord) })
	return v.shots[i:]
}
