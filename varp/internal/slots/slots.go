// Package slots has a hash table for millions of small rows that are looked up far more
// often than they change. A Table is protected by its user's lock.
package slots

import "unsafe"

// Table is a hash table in one array: a lookup reads one or two cache lines, where one
// through maps and pointers of a million rows waits for ten. Keys and values have no
// pointers, so the garbage collector does not scan them. The zero key marks a free slot
// and is never put.
//
// A key is in the first free slot from its hash on, and removing closes the gap, so
// that no marker of a removed row is needed.
type Table[K comparable, V any] struct {
	hash func(K) uint64
	rows []slot[K, V] // a power of two
	n    int
	hint func([]slot[K, V]) // tells the kernel how the rows are used
}

type slot[K comparable, V any] struct {
	key   K
	value V
}

// minSlots is the first size of the array; it doubles when three quarters are
// taken.
const minSlots = 64

// New returns an empty table. hash must also spread keys that tenants choose.
func New[K comparable, V any](hash func(K) uint64) *Table[K, V] {
	return &Table[K, V]{hash: hash, rows: make([]slot[K, V], minSlots), hint: onHugePages[slot[K, V]]}
}

// find returns the slot of key, or the free slot where it belongs.
func (s *Table[K, V]) find(key K) (at int, found bool) {
	var free K
	mask := len(s.rows) - 1
	for at = int(s.hash(key)) & mask; ; at = (at + 1) & mask {
		switch s.rows[at].key {
		case key:
			return at, true
		case free:
			return at, false
		}
	}
}

// Get returns the value of key, and whether it is there.
func (s *Table[K, V]) Get(key K) (value V, ok bool) {
	at, ok := s.find(key)
	return s.rows[at].value, ok
}

// Put sets the value of key, which is not zero.
func (s *Table[K, V]) Put(key K, value V) {
	at, found := s.find(key)
	s.rows[at] = slot[K, V]{key, value}
	if found {
		return
	}
	if s.n++; s.n > len(s.rows)*3/4 {
		s.grow()
	}
}

func (s *Table[K, V]) grow() {
	var free K
	old := s.rows
	s.rows = make([]slot[K, V], 2*len(old))
	s.hint(s.rows)
	for _, row := range old {
		if row.key != free {
			at, _ := s.find(row.key)
			s.rows[at] = row
		}
	}
}

// Remove removes key, if it is there.
func (s *Table[K, V]) Remove(key K) {
	at, found := s.find(key)
	if !found {
		return
	}
	s.n--
	var free K
	mask := len(s.rows) - 1
	for next := (at + 1) & mask; s.rows[next].key != free; next = (next + 1) & mask {
		// The next row may close the gap if its hash allows that slot.
		if home := int(s.hash(s.rows[next].key)) & mask; (next-home)&mask >= (next-at)&mask {
			s.rows[at] = s.rows[next]
			at = next
		}
	}
	s.rows[at] = slot[K, V]{}
}

// Slot returns where the search for a key begins.
func (s *Table[K, V]) Slot(key K) uint32 { return uint32(int(s.hash(key)) & (len(s.rows) - 1)) }

// Touch reads slots so that they are in the processor's cache, all at the same time where
// a lookup after the other waits for each. What it returns has no meaning: it makes the
// compiler read.
//
//go:noinline
func (s *Table[K, V]) Touch(slots []uint32) (free int) {
	var zero K
	rows := s.rows
	for _, at := range slots {
		if int(at) < len(rows) && rows[at].key == zero {
			free++
		}
	}
	return free
}

// Large reports whether the table is larger than the caches that a processor has for
// itself.
func (s *Table[K, V]) Large() bool {
	var one slot[K, V]
	return uintptr(len(s.rows))*unsafe.Sizeof(one) > 1<<20
}
