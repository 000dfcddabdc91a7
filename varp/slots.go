package varp

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"

	"rutter/log"
)

// slots is a hash table in one array: a lookup reads one line of memory or two,
// where one through maps and pointers of a million rows waits for ten. Keys and
// values hold no pointers, so that the garbage collector never looks at them.
// The zero key marks a free slot and is never put.
//
// A slot's place is the first free one from its hash on, and removing closes
// the gap, so that nothing marks what was.
type slots[K comparable, V any] struct {
	hash func(K) uint64
	rows []slot[K, V] // a power of two
	n    int
}

type slot[K comparable, V any] struct {
	key   K
	value V
}

// minSlots is the first size of the array; it doubles when three quarters are
// taken.
const minSlots = 64

func newSlots[K comparable, V any](hash func(K) uint64) *slots[K, V] {
	return &slots[K, V]{hash: hash, rows: make([]slot[K, V], minSlots)}
}

// find returns where key is, or the free slot where it would be.
func (s *slots[K, V]) find(key K) (at int, found bool) {
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

func (s *slots[K, V]) get(key K) (value V, ok bool) {
	at, ok := s.find(key)
	return s.rows[at].value, ok
}

func (s *slots[K, V]) put(key K, value V) {
	at, found := s.find(key)
	s.rows[at] = slot[K, V]{key, value}
	if found {
		return
	}
	if s.n++; s.n > len(s.rows)*3/4 {
		s.grow()
	}
}

func (s *slots[K, V]) grow() {
	var free K
	old := s.rows
	s.rows = make([]slot[K, V], 2*len(old))
	onHugePages(s.rows)
	for _, row := range old {
		if row.key != free {
			at, _ := s.find(row.key)
			s.rows[at] = row
		}
	}
}

// remove takes key out, if it is there.
func (s *slots[K, V]) remove(key K) {
	at, found := s.find(key)
	if !found {
		return
	}
	s.n--
	var free K
	mask := len(s.rows) - 1
	for next := (at + 1) & mask; s.rows[next].key != free; next = (next + 1) & mask {
		// The next may close the gap if it does not belong behind it.
		if home := int(s.hash(s.rows[next].key)) & mask; (next-home)&mask >= (next-at)&mask {
			s.rows[at] = s.rows[next]
			at = next
		}
	}
	s.rows[at] = slot[K, V]{}
}

// macKey and ipKey are the keys of Mappings. vnet is one more than the vnet's
// number, so that no key is zero.
type (
	macKey struct {
		vnet uint32
		mac  log.MAC
	}
	ipKey struct {
		vnet uint32
		ip   [16]byte
	}
)

// mixer hashes keys with a random seed: tenants choose addresses, and must not
// be able to choose those that collide.
type mixer struct{ a, b uint64 }

func newMixer() mixer { return mixer{rand.Uint64() | 1, rand.Uint64() | 1} }

func (m mixer) mix(x, y uint64) uint64 {
	hi, lo := bits.Mul64(x^m.a, y^m.b)
	return hi ^ lo
}

func (m mixer) mac(k macKey) uint64 {
	return m.mix(uint64(k.vnet)<<16|uint64(binary.BigEndian.Uint16(k.mac[:])), uint64(binary.BigEndian.Uint32(k.mac[2:])))
}

func (m mixer) ip(k ipKey) uint64 {
	return m.mix(m.mix(binary.BigEndian.Uint64(k.ip[:]), uint64(k.vnet)), binary.BigEndian.Uint64(k.ip[8:]))
}
