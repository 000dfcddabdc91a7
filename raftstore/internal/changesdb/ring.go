package changesdb

import "rutter/log"

// Ring holds the newest entries in memory, encoded, for readers near the head. It keeps
// at least MaxEntries entries or MaxBytes bytes. Beyond that it drops only entries that
// are durable in changes.db (SAFETY P1), so every entry is in the ring or in the file. It
// has no lock of its own.
type Ring struct {
	slots      []Slot // circular; its length is a power of two
	First      log.Seq
	n          int
	bytes      int
	MaxEntries int
	MaxBytes   int
}

// minRing is the first size of the array, which doubles as needed.
const minRing = 1024

// Reset empties the ring. The next entry is the one after seq.
func (r *Ring) Reset(seq log.Seq) {
	r.slots, r.First, r.n, r.bytes = make([]Slot, minRing), seq+1, 0, 0
}

// At returns the entry of seq. Has(seq) must be true.
func (r *Ring) At(seq log.Seq) *Slot { return &r.slots[int(seq)&(len(r.slots)-1)] }

// Push adds the entry after the last one.
func (r *Ring) Push(s Slot, durable log.Seq) {
	for r.n > 0 && r.First <= durable && (r.n >= r.MaxEntries || r.bytes >= r.MaxBytes) {
		old := r.At(r.First)
		r.bytes -= len(old.Bytes)
		*old = Slot{}
		r.First++
		r.n--
	}
	if r.n == len(r.slots) {
		r.grow()
	}
	*r.At(s.Seq) = s
	r.n++
	r.bytes += len(s.Bytes)
}

func (r *Ring) grow() {
	old := *r
	r.slots = make([]Slot, 2*len(old.slots))
	for seq := old.First; seq < old.First+log.Seq(old.n); seq++ {
		*r.At(seq) = *old.At(seq)
	}
}

// Has reports whether the entry of seq is in the ring.
func (r *Ring) Has(seq log.Seq) bool { return seq >= r.First && seq < r.First+log.Seq(r.n) }

// Read gives a collector the entries after a seq, until it is full or the ring ends. The
// first of them must be in the ring.
func (r *Ring) Read(after log.Seq, c *Collector) {
	for seq := after + 1; r.Has(seq); seq++ {
		if !c.take(*r.At(seq)) {
			return
		}
	}
}
