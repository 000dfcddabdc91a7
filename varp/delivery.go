package varp

import (
	"slices"

	"rutter/log"
)

// delivery is one answer to a node's LOG_REQ. News comes first, the newest before all:
// a node that cannot keep up gets of each mapping the last change, and of all changes
// the last ones.
//
// If not everything fits, half of the answer is news, and the rest is for what may
// never come otherwise: an eighth for what was given and not acknowledged, and what is
// left in equal parts for the oldest changes and for the rows. The oldest changes bound
// the time until a mapping is reported that changed once, the rows that of one that
// changes again and again.
type delivery struct {
	r     *logReader
	x     *invalidationIndex
	rows  Rows
	vnets []uint32

	dst    []Record
	before int     // records of dst that are not of this answer
	room   int     // bytes that are left
	given  int     // records that were added to pending
	ofRows int     // records of rows in pending
	newest log.Seq // change among what was added
	tiny   bool    // a VL3 record never fits

	news    []indexedInvalidation // unread, the newest first
	all     map[uint32]bool       // vnets of which news has all that is unread
	unacked []pendingRecord       // given earlier, the newest first
}

// deliver appends to dst what the node is given next, at most maxBytes, and returns the
// newest change among what it is given for the first time, 0 if there is none.
func (r *logReader) deliver(dst []Record, maxBytes int, x *invalidationIndex, rows Rows, vnets []uint32) ([]Record, log.Seq) {
	d := &delivery{r: r, x: x, rows: rows, vnets: vnets, dst: dst, before: len(dst), room: maxBytes, tiny: maxBytes < recordVL3Size, all: make(map[uint32]bool)}
	crowded := d.look(maxBytes)
	if crowded {
		d.within(max(maxBytes/2, recordVL3Size), d.giveNews)
		d.within(maxBytes/8, d.giveUnacked)
		d.within(d.room/2, d.giveOldest)
		d.within(d.room, func() { d.readRows(true) })
	}
	d.within(d.room, d.giveNews)
	d.within(d.room, d.giveUnacked)
	d.within(d.room, func() { d.readRows(crowded) })
	for vnet := range d.all {
		c := r.vnets[vnet]
		if !slices.ContainsFunc(d.news, func(h indexedInvalidation) bool { return h.vnet == vnet && c.unread.Contains(h.ord) }) {
			c.unread.Clear()
		}
	}
	return d.dst, d.newest
}

// within runs a part of the delivery with at most some bytes.
func (d *delivery) within(most int, part func()) {
	kept := d.room - min(most, d.room)
	d.room -= kept
	part()
	d.room += kept
}

// look collects what there is, and reports whether it is more than fits.
func (d *delivery) look(maxBytes int) (crowded bool) {
	most, size := min(maxAnswer, maxBytes/recordVL2Size), 0
	for _, vnet := range d.vnets {
		c := d.r.vnets[vnet]
		if c.unread.Empty() {
			continue
		}
		found, all := d.x.newest(vnet, &c.unread, most)
		d.news = append(d.news, found...)
		if all {
			d.all[vnet] = true
		}
		crowded = crowded || !all
	}
	slices.SortFunc(d.news, byNewest)
	for _, h := range d.news {
		size += h.size()
	}
	d.unacked = slices.Clone(d.r.pending)
	slices.SortStableFunc(d.unacked, func(a, b pendingRecord) int {
		return byNewest(indexedInvalidation{ord: a.ord}, indexedInvalidation{ord: b.ord})
	})
	for _, p := range d.unacked {
		size += p.size()
		if p.ord == 0 {
			d.ofRows++
		}
	}
	return crowded || size > maxBytes
}

// fits reports whether a record fits, and if not, whether smaller ones may follow.
func (d *delivery) fits(s invalidation) (ok, goOn bool) {
	if s.size() <= d.room {
		return true, true
	}
	return false, d.tiny && s.typ == RecordVL3
}

// giveNews gives unread changes, the newest first.
func (d *delivery) giveNews() {
	for _, h := range d.news {
		c := d.r.vnets[h.vnet]
		if !c.unread.Contains(h.ord) {
			continue // given
		}
		if ok, goOn := d.give(h.invalidation, h.ord); !ok && goOn {
			continue
		} else if !ok {
			return
		}
		top := h.ord
		for _, p := range c.unread.Spans() {
			if p.Lo < h.ord && h.ord <= p.Hi && !d.tiny {
				top = p.Hi // all above were given
			}
		}
		c.unread.Cut(h.ord-1, top, h.seq-1)
	}
}

// giveOldest gives unread changes, the oldest first.
func (d *delivery) giveOldest() {
	var old []indexedInvalidation
	for _, vnet := range d.vnets {
		if c := d.r.vnets[vnet]; !c.unread.Empty() {
			old = append(old, d.x.oldest(vnet, &c.unread, 1+d.room/recordVL2Size)...)
		}
	}
	slices.SortFunc(old, func(a, b indexedInvalidation) int { return byNewest(b, a) })
	for _, h := range old {
		c := d.r.vnets[h.vnet]
		if !c.unread.Contains(h.ord) {
			continue
		}
		if ok, goOn := d.give(h.invalidation, h.ord); !ok && goOn {
			continue
		} else if !ok {
			return
		}
		bottom := h.ord - 1
		for _, p := range c.unread.Spans() {
			if p.Lo < h.ord && h.ord <= p.Hi && !d.tiny {
				bottom = p.Lo
			}
		}
		c.unread.Cut(bottom, h.ord, h.seq-1)
	}
}

// giveUnacked repeats what was given earlier and not acknowledged.
func (d *delivery) giveUnacked() {
	for len(d.unacked) > 0 {
		p := d.unacked[0]
		held := slices.ContainsFunc(d.r.pending, func(q pendingRecord) bool { return q.id == p.id }) &&
			!slices.ContainsFunc(d.dst[d.before:], func(record Record) bool { return record.ID == p.id })
		if ok, goOn := d.fits(p.invalidation); held && ok {
			d.room -= p.size()
			d.dst = append(d.dst, p.record())
		} else if held && !goOn {
			return
		}
		d.unacked = d.unacked[1:]
	}
}

// give adds a record to the answer and to pending, in place of an older one of the same
// mapping.
func (d *delivery) give(s invalidation, ord uint64) (ok, goOn bool) {
	if ok, goOn = d.fits(s); !ok || d.given >= maxAnswer {
		return false, goOn && d.given < maxAnswer
	}
	d.r.pending = slices.DeleteFunc(d.r.pending, func(p pendingRecord) bool { return p.mapping == s.mapping })
	d.repeal(s.mapping)
	d.r.forgive(d.x)
	d.r.pending = append(d.r.pending, pendingRecord{invalidation: s, id: s.id(), ord: ord})
	d.dst = append(d.dst, s.record())
	d.room -= s.size()
	d.given++
	seq := s.seq
	if ord == 0 {
		// What moved the row's node later than this is in the index above its floor.
		seq = max(seq, d.x.floorSeq)
	}
	d.newest = max(d.newest, seq)
	return true, true
}

// repeal removes an earlier record of a mapping from the answer.
func (d *delivery) repeal(m mapping) {
	kept := d.dst[:d.before]
	for _, record := range d.dst[d.before:] {
		if recordMapping(record) == m {
			d.room += record.Size()
			continue
		}
		kept = append(kept, record)
	}
	d.dst = kept
}

// readRows continues with the rows of the vnets that are swept. hot: also with those of
// vnets with unread changes, for those changes.
func (d *delivery) readRows(hot bool) {
	if d.room < recordVL2Size || len(d.vnets) == 0 {
		return
	}
	start, _ := slices.BinarySearch(d.vnets, d.r.rowVNet)
	looked := 0
	for i := range d.vnets {
		vnet := d.vnets[(start+i)%len(d.vnets)]
		d.r.rowVNet = vnet
		if !d.readVNet(vnet, hot, &looked) {
			return
		}
		d.r.rowVNet = vnet + 1
	}
}

// readVNet is readRows for one vnet. false: there is no more room.
func (d *delivery) readVNet(vnet uint32, hot bool, looked *int) bool {
	c := d.r.vnets[vnet]
	for range 2 { // to the end, and from the first row to where it began
		if !c.sweeping && !(hot && !c.unread.Empty()) {
			return true
		}
		for row := range d.rows.NICs(vnet, c.after) {
			if *looked++; *looked > rowsPerAnswer {
				return false
			}
			if c.half != row.MAC && !d.giveRow(c, invalidation{mappingVL2(vnet, row.MAC), 0, row.Seq}) {
				return false
			}
			c.half = row.MAC
			if row.IP.IsValid() && !d.giveRow(c, invalidation{mappingVL3(vnet, row.IP), row.VLAN, row.Seq}) {
				return false
			}
			c.passed(row.MAC, false)
		}
		c.passed(log.MAC{}, true)
	}
	return true
}

// giveRow gives a mapping of a row, unless the node has it: those in the index above its
// floor are given as unread changes.
func (d *delivery) giveRow(c *vnetReading, s invalidation) bool {
	h, held := d.x.find(s.mapping)
	switch {
	case held && c.unread.Contains(h.ord):
		ok, _ := d.give(h.invalidation, h.ord)
		if ok {
			c.unread.Cut(h.ord-1, h.ord, h.seq-1)
		}
		return ok
	case held && h.ord > d.x.floor, !c.sweeping:
		return true
	case slices.ContainsFunc(d.r.pending, func(p pendingRecord) bool { return p.mapping == s.mapping && p.seq >= s.seq }):
		return true
	case d.ofRows >= maxPending-maxAnswer:
		return false
	}
	ok, _ := d.give(s, 0)
	if ok {
		d.ofRows++
	}
	return ok
}
