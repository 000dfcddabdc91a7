package varp

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"rutter/log"
	"rutter/varp/internal/places"
	"rutter/varp/internal/spans"
)

const (
	// maxPending bounds the records that a node was given and has not acknowledged:
	// four batches of an illumos client, which asks for 1,024 bytes.
	maxPending = 128
	// maxAnswer bounds the records of one answer.
	maxAnswer = maxPending / 2
	// rowsPerAnswer bounds the rows that are looked at for one answer.
	rowsPerAnswer = 512
)

// logReader is the state of one underlay address in Shootdowns. Shootdowns.mu protects
// its fields.
//
// What a node may have cached and must forget is in one of three places: in pending; in
// the unread invalidations of a vnet; or in the rows of a vnet that is swept.
type logReader struct {
	nodes []log.UUID // that have the address, as of underlayChanges
	moves uint64
	tick  uint64 // of its last request

	pending []pendingRecord // given and not acknowledged, at most maxPending
	vnets   map[uint32]*vnetReading
	read    uint64  // ord of the index at the last request
	readSeq log.Seq // as read
	rowVNet uint32  // whose rows are read next

	deliveries places.Deliveries
	version    uint64    // of Shootdowns when the others must learn of this node
	reported   time.Time // when version was set last
}

// pendingRecord is a record that was given. ord is 0 for that of a row.
type pendingRecord struct {
	invalidation
	id  log.UUID
	ord uint64
}

// vnetReading is what a node has been given of a vnet.
type vnetReading struct {
	unread spans.Set // invalidations in the index that were not given
	read   uint64    // of the index: later ones are added to unread
	seq    log.Seq   // as read
	floor  uint64    // of the index, for which the rows were read, or are being read

	// after is the MAC up to which the rows were read last, half is the MAC of the next
	// one if only its VL2 record was given. A sweep ends when it has been at all rows:
	// at the end if it began at the first, else at until, after the end.
	after, half, until log.MAC
	sweeping, wrapped  bool
}

// sweep begins to read all rows from where the last reading stopped, whatever their
// seq: where a MAC is depends also on its node's underlay NICs, and a deleted one
// leaves no trace in any row. A sweep that begins again and again comes to each row.
func (c *vnetReading) sweep(floor uint64) {
	c.sweeping, c.wrapped, c.until, c.floor = true, false, c.after, floor
}

// passed notes that the rows up to mac were read; end: to the last.
func (c *vnetReading) passed(mac log.MAC, end bool) {
	c.after, c.half = mac, log.MAC{}
	switch {
	case end:
		c.after = log.MAC{}
		if c.wrapped || c.until == (log.MAC{}) {
			c.sweeping = false
		}
		c.wrapped = true
	case c.wrapped && mac.Compare(c.until) >= 0:
		c.sweeping = false
	}
}

// extend makes what the index has noted since the last request unread.
func (c *vnetReading) extend(x *invalidationIndex, vnet uint32) {
	lowest := c.read
	if p, ok := c.unread.Least(); ok {
		lowest = min(lowest, p.Lo)
	}
	if max(lowest, c.floor) < x.floor {
		c.sweep(x.floor)
	}
	if x.last(vnet) > c.read {
		c.unread.Add(spans.Span{Lo: c.read, Hi: x.ord, Seq: c.seq})
	}
	c.read, c.seq = x.ord, x.seq
}

// has notes that the node has everything of a vnet up to seq, which is at least the
// index's floorSeq.
func (c *vnetReading) has(x *invalidationIndex, vnet uint32, seq log.Seq) {
	ord := x.ordAt(vnet, seq)
	c.unread.Cut(0, ord, seq)
	if c.read < ord {
		c.read, c.seq = ord, seq
	}
	c.sweeping, c.floor = false, x.floor
}

// fill brings the reader up to the index: what is new becomes unread, a vnet that is
// new or of which the index has lost something is swept. from is the place that is
// known of the node, if it was not known here.
func (r *logReader) fill(x *invalidationIndex, rows Rows, from *places.Place) []uint32 {
	vnets := r.vnetsOf(rows)
	r.leave(vnets)
	for _, vnet := range vnets {
		c := r.vnets[vnet]
		if c == nil {
			c = new(vnetReading)
			r.vnets[vnet] = c
			if _, ok := from.Covers(vnet); ok && from.Seq >= x.floorSeq {
				c.has(x, vnet, from.Seq)
				r.deliveries.Past(from.Seq)
			} else {
				c.sweep(x.floor)
			}
		}
		c.extend(x, vnet)
	}
	r.read, r.readSeq = x.ord, x.seq
	r.forget(vnets)
	r.pending = slices.DeleteFunc(r.pending, func(p pendingRecord) bool {
		return x.held[p.mapping] > p.ord && r.vnets[p.vnet].unread.Contains(x.held[p.mapping])
	})
	return vnets
}

// leave removes from pending the records of vnets that the node has left. A node that
// returns without having acknowledged gets everything of that vnet.
func (r *logReader) leave(vnets []uint32) {
	r.pending = slices.DeleteFunc(r.pending, func(p pendingRecord) bool {
		if slices.Contains(vnets, p.vnet) {
			return false
		}
		delete(r.vnets, p.vnet)
		return true
	})
}

// vnetsOf returns the vnets of the node, sorted.
func (r *logReader) vnetsOf(rows Rows) []uint32 {
	var vnets []uint32
	for _, node := range r.nodes {
		vnets = append(vnets, rows.VNets(node)...)
	}
	slices.Sort(vnets)
	return slices.Compact(vnets)
}

// keptPositions is how many vnets that a node has left keep their position, in addition
// to as many as it is on: if it returns soon, it gets only what is new.
const keptPositions = 16

// forget drops the positions of vnets that the node is no longer on, if there are too
// many. A node that returns gets everything of such a vnet.
func (r *logReader) forget(vnets []uint32) {
	if len(r.vnets) <= 2*len(vnets)+keptPositions {
		return
	}
	for vnet := range r.vnets {
		if !slices.Contains(vnets, vnet) {
			delete(r.vnets, vnet)
		}
	}
}

// acknowledge removes the records of these ids from pending, and reports how many there
// were.
func (r *logReader) acknowledge(ids []log.UUID) int {
	before := len(r.pending)
	r.pending = slices.DeleteFunc(r.pending, func(p pendingRecord) bool { return slices.Contains(ids, p.id) })
	if len(r.pending) == 0 {
		r.pending = nil
	}
	return before - len(r.pending)
}

// others returns the ids that are not of pending.
func (r *logReader) others(ids []log.UUID) (others []log.UUID) {
	for _, id := range ids {
		if !slices.ContainsFunc(r.pending, func(p pendingRecord) bool { return p.id == id }) {
			others = append(others, id)
		}
	}
	return others
}

// place is what the node has acknowledged: everything up to Seq on VNets. A vnet that
// is swept, or of which the record of a row waits, is not among them.
func (r *logReader) place(cn netip.Addr) places.Place {
	p := places.Place{CN: cn, Node: r.nodes[0], Seq: r.readSeq}
	rowsOf := make(map[uint32]bool)
	for _, w := range r.pending {
		if w.ord == 0 {
			rowsOf[w.vnet] = true
		}
	}
	covered := func(vnet uint32) bool { return !rowsOf[vnet] && !r.vnets[vnet].sweeping }
	for vnet, c := range r.vnets {
		if c.read < r.read || !covered(vnet) { // it left, or does not have it all
			continue
		}
		p.VNets = append(p.VNets, vnet)
		if least, some := c.unread.Least(); some {
			p.Seq = min(p.Seq, least.Seq)
		}
	}
	for _, w := range r.pending {
		if covered(w.vnet) {
			p.Seq = min(p.Seq, w.seq-1)
		}
	}
	slices.Sort(p.VNets)
	p.VNets = p.VNets[:min(len(p.VNets), places.MaxVNets)]
	return p
}

// forgive makes room in pending for one more, if there is none: the oldest that is in
// the index becomes unread again.
func (r *logReader) forgive(x *invalidationIndex) {
	if len(r.pending) < maxPending {
		return
	}
	oldest := -1
	for i, p := range r.pending {
		if p.ord > 0 && (oldest < 0 || p.ord < r.pending[oldest].ord) {
			oldest = i
		}
	}
	p := r.pending[oldest] // at most maxPending-maxAnswer are of rows
	r.pending = slices.Delete(r.pending, oldest, oldest+1)
	if x.held[p.mapping] == p.ord {
		r.vnets[p.vnet].unread.Add(spans.Span{Lo: p.ord - 1, Hi: p.ord, Seq: p.seq - 1})
	}
}

// has notes that the node has everything up to p, which it acknowledged elsewhere.
func (r *logReader) has(x *invalidationIndex, p *places.Place) {
	for _, vnet := range p.VNets {
		if c := r.vnets[vnet]; c != nil {
			c.has(x, vnet, p.Seq)
		}
	}
	r.pending = slices.DeleteFunc(r.pending, func(w pendingRecord) bool {
		seq, ok := p.Covers(w.vnet)
		return ok && w.seq <= seq
	})
	r.deliveries.Past(p.Seq)
}

// giveAgain makes unread what the node was given above from, up to and with to: another
// server may have answered it wrongly since. That is so on a vnet that is swept too: a
// sweep leaves out what the index has above its floor.
func (r *logReader) giveAgain(x *invalidationIndex, from, to log.Seq) {
	for vnet, c := range r.vnets {
		hi := min(x.ordAt(vnet, to), c.read)
		c.unread.Add(spans.Span{Lo: min(x.ordAt(vnet, from), hi), Hi: hi, Seq: from})
	}
	r.pending = slices.DeleteFunc(r.pending, func(w pendingRecord) bool { return w.ord > 0 && from < w.seq && w.seq <= to })
	r.deliveries.Void(from, to)
}

func byNewest(a, b indexedInvalidation) int { return cmp.Compare(b.ord, a.ord) }
