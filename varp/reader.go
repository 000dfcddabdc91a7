package varp

import (
	"slices"

	"rutter/log"
)

// maxPending bounds the records that a node was given and has not acknowledged: four
// batches of an illumos client, which asks for 1,024 bytes.
const maxPending = 128

// logReader is the state of one underlay address in Shootdowns. Shootdowns.mu protects
// its fields.
type logReader struct {
	nodes []log.UUID // that have the address, as of underlayChanges
	moves uint64
	tick  uint64 // of its last request

	pending   []pendingRecord // not acknowledged, at most maxPending
	positions map[uint32]*readPosition
}

type pendingRecord struct {
	invalidation
	id    log.UUID
	given bool // delivered since the mapping changed last
}

// readPosition is how far a node has come on a vnet: everything before it was pending.
type readPosition struct {
	ord   uint64 // in the index
	floor uint64 // of the index, for which the rows were read, or are being read

	sweeping bool    // the rows are being read
	after    log.MAC // the last MAC of the sweep
}

// fill adds to pending what is new to the node, as far as there is room.
func (r *logReader) fill(x *invalidationIndex, rows Rows) {
	vnets := r.vnets(rows)
	r.leave(vnets)
	for _, vnet := range vnets {
		p := r.positions[vnet]
		if p == nil {
			p = new(readPosition)
			r.positions[vnet] = p
			p.sweep(x.floor)
		} else if max(p.ord, p.floor) < x.floor {
			p.sweep(x.floor)
		}
	}
	r.fillNews(x, vnets)
	for _, vnet := range vnets {
		if p := r.positions[vnet]; p.sweeping && p.ord == x.ord {
			r.fillRows(x, rows, vnet, p)
		}
	}
	r.forget(vnets)
}

// leave removes from pending the records of vnets that the node has left. A node that
// returns without having acknowledged gets everything of that vnet.
func (r *logReader) leave(vnets []uint32) {
	r.pending = slices.DeleteFunc(r.pending, func(p pendingRecord) bool {
		if slices.Contains(vnets, p.vnet) {
			return false
		}
		delete(r.positions, p.vnet)
		return true
	})
}

// vnets returns the vnets of the node, sorted.
func (r *logReader) vnets(rows Rows) []uint32 {
	var vnets []uint32
	for _, node := range r.nodes {
		vnets = append(vnets, rows.VNets(node)...)
	}
	slices.Sort(vnets)
	return slices.Compact(vnets)
}

// sweep begins to read the rows, from the first. It reads all of them, whatever their
// seq: where a MAC is depends also on its node's underlay NICs, and a deleted one
// leaves no trace in any row.
func (p *readPosition) sweep(floor uint64) {
	p.sweeping, p.after, p.floor = true, log.MAC{}, floor
}

// fillNews takes the invalidations of all vnets in the order of the log.
func (r *logReader) fillNews(x *invalidationIndex, vnets []uint32) {
	news := make([][]indexedInvalidation, len(vnets))
	for i, vnet := range vnets {
		news[i] = x.after(vnet, r.positions[vnet].ord)
	}
	for {
		first := -1
		for i := range news {
			for len(news[i]) > 0 && !x.isLive(news[i][0]) {
				news[i] = news[i][1:]
			}
			if len(news[i]) > 0 && (first < 0 || news[i][0].ord < news[first][0].ord) {
				first = i
			}
		}
		if first < 0 {
			break
		}
		next := news[first][0]
		if !r.take(next.invalidation) {
			return
		}
		p := r.positions[vnets[first]]
		p.ord = next.ord
		news[first] = news[first][1:]
	}
	for _, vnet := range vnets {
		r.positions[vnet].ord = x.ord
	}
}

// take puts s into pending, in place of an older one of the same mapping if there is
// one. false: there is no room.
func (r *logReader) take(s invalidation) bool {
	i := slices.IndexFunc(r.pending, func(p pendingRecord) bool { return p.mapping == s.mapping })
	switch {
	case i >= 0 && r.pending[i].seq >= s.seq:
		return true
	case i >= 0:
		r.pending = slices.Delete(r.pending, i, i+1)
	case len(r.pending) >= maxPending:
		return false
	}
	r.pending = append(r.pending, pendingRecord{invalidation: s, id: s.id()})
	return true
}

// fillRows continues with the rows of a vnet. Those that the index has above its floor
// were taken from there.
func (r *logReader) fillRows(x *invalidationIndex, rows Rows, vnet uint32, p *readPosition) {
	for row := range rows.NICs(vnet, p.after) {
		if len(r.pending) > maxPending-2 {
			return
		}
		r.takeRow(x, invalidation{mappingVL2(vnet, row.MAC), 0, row.Seq})
		if row.IP.IsValid() {
			r.takeRow(x, invalidation{mappingVL3(vnet, row.IP), row.VLAN, row.Seq})
		}
		p.after = row.MAC
	}
	p.sweeping = false
}

func (r *logReader) takeRow(x *invalidationIndex, s invalidation) {
	if x.held[s.mapping] <= x.floor {
		r.take(s)
	}
}

// keptPositions is how many vnets that a node has left keep their position, in addition
// to as many as it is on: if it returns soon, it gets only what is new.
const keptPositions = 16

// forget drops the positions of vnets that the node is no longer on, if there are too
// many. A node that returns gets everything of such a vnet.
func (r *logReader) forget(vnets []uint32) {
	if len(r.positions) <= 2*len(vnets)+keptPositions {
		return
	}
	for vnet := range r.positions {
		if !slices.Contains(vnets, vnet) {
			delete(r.positions, vnet)
		}
	}
}

// deliver appends pending records to dst, oldest first, up to maxBytes. If the first is
// too long for the request, shorter ones come before it.
func (r *logReader) deliver(dst []Record, maxBytes int) []Record {
	some := false
	for i := range r.pending {
		p := &r.pending[i]
		record := p.record()
		if record.Size() > maxBytes {
			if some {
				break
			}
			continue
		}
		some, p.given = true, true
		maxBytes -= record.Size()
		dst = append(dst, record)
	}
	return dst
}

// acknowledge removes the records of these ids from pending, if they were delivered.
func (r *logReader) acknowledge(ids []log.UUID) {
	r.pending = slices.DeleteFunc(r.pending, func(p pendingRecord) bool { return p.given && slices.Contains(ids, p.id) })
	if len(r.pending) == 0 {
		r.pending = nil
	}
}
