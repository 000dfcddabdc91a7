package raftstore

import "rutter/log"

// ring holds the newest entries in memory, encoded, for readers near the head.
// It keeps at least limit entries or bytes, and above that drops only what is
// durable in changes.db (SAFETY P1): every entry is in the ring or in the file.
// It is protected by Store.mu.
type ring struct {
	slots      []slot // circular; its length is a power of two
	first      log.Seq
	n          int
	bytes      int
	maxEntries int
	maxBytes   int
}

// minRing is the first size of the array, which doubles as needed.
const minRing = 1024

// reset empties the ring; the next entry is that after seq.
func (r *ring) reset(seq log.Seq) {
	r.slots, r.first, r.n, r.bytes = make([]slot, minRing), seq+1, 0, 0
}

func (r *ring) at(seq log.Seq) *slot { return &r.slots[int(seq)&(len(r.slots)-1)] }

// push adds the entry after the last one.
func (r *ring) push(s slot, durable log.Seq) {
	for r.n > 0 && r.first <= durable && (r.n >= r.maxEntries || r.bytes >= r.maxBytes) {
		old := r.at(r.first)
		r.bytes -= len(old.Bytes)
		*old = slot{}
		r.first++
		r.n--
	}
	if r.n == len(r.slots) {
		r.grow()
	}
	*r.at(s.Seq) = s
	r.n++
	r.bytes += len(s.Bytes)
}

func (r *ring) grow() {
	old := *r
	r.slots = make([]slot, 2*len(old.slots))
	for seq := old.first; seq < old.first+log.Seq(old.n); seq++ {
		*r.at(seq) = *old.at(seq)
	}
}

// has reports whether the entry of seq is in the ring.
func (r *ring) has(seq log.Seq) bool { return seq >= r.first && seq < r.first+log.Seq(r.n) }

// read appends the entries after seq to a collector, until it is full or the
// ring ends. The first of them must be in the ring.
func (r *ring) read(after log.Seq, c *collector) {
	for seq := after + 1; r.has(seq); seq++ {
		if !c.take(*r.at(seq)) {
			return
		}
	}
}
