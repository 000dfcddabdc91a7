package projections

import (
	"encoding/binary"
	"net/netip"

	"rutter/log"
)

// rowTable is a hash table of rows by something that each row says of itself: an
// array of pointers, where a map would keep the key as well. With a million NICs
// that is 16 bytes for each instead of a hundred, and nothing more to wait for:
// who looks a row up reads it anyway.
//
// A row's place is the first free one from its hash on, and removing closes the
// gap. What a row says of itself does not change while it is in the table.
type rowTable struct {
	hash  func(*row) uint64
	slots []*row // none, or a power of two
	n     int
}

// minRowSlots is the first size of the array; it doubles when three quarters are
// taken.
const minRowSlots = 8

// find returns the row of a hash that is is true of, or nil.
func (t *rowTable) find(hash uint64, is func(*row) bool) *row {
	if t.n == 0 {
		return nil
	}
	mask := uint64(len(t.slots) - 1)
	for at := hash & mask; t.slots[at] != nil; at = (at + 1) & mask {
		if is(t.slots[at]) {
			return t.slots[at]
		}
	}
	return nil
}

// withKey returns the row of a key, in a table that is by keys, or nil. Nothing
// is allocated for a key that is made of bytes where it is called.
func (t *rowTable) withKey(key string) *row {
	if t.n == 0 {
		return nil
	}
	mask := uint64(len(t.slots) - 1)
	for at := hashKey(key) & mask; t.slots[at] != nil; at = (at + 1) & mask {
		if t.slots[at].hasKey(key) {
			return t.slots[at]
		}
	}
	return nil
}

// add adds r, of which there is no equal.
func (t *rowTable) add(r *row) { t.put(r, func(*row) bool { return false }) }

// put adds r, in the place of the row that is is true of if there is one.
func (t *rowTable) put(r *row, is func(*row) bool) {
	if t.n >= len(t.slots)*3/4 {
		t.grow()
	}
	mask := uint64(len(t.slots) - 1)
	at := t.hash(r) & mask
	for ; t.slots[at] != nil; at = (at + 1) & mask {
		if is(t.slots[at]) {
			t.slots[at] = r
			return
		}
	}
	t.slots[at] = r
	t.n++
}

func (t *rowTable) grow() {
	old := t.slots
	t.slots = make([]*row, max(minRowSlots, 2*len(old)))
	mask := uint64(len(t.slots) - 1)
	for _, r := range old {
		if r == nil {
			continue
		}
		at := t.hash(r) & mask
		for t.slots[at] != nil {
			at = (at + 1) & mask
		}
		t.slots[at] = r
	}
}

// remove takes r out, and reports whether it, itself, was there.
func (t *rowTable) remove(r *row) bool {
	if t.n == 0 {
		return false
	}
	mask := uint64(len(t.slots) - 1)
	at := t.hash(r) & mask
	for t.slots[at] != r {
		if t.slots[at] == nil {
			return false
		}
		at = (at + 1) & mask
	}
	t.n--
	for next := (at + 1) & mask; t.slots[next] != nil; next = (next + 1) & mask {
		// The next may close the gap if it does not belong behind it.
		if home := t.hash(t.slots[next]) & mask; (next-home)&mask >= (next-at)&mask {
			t.slots[at], at = t.slots[next], next
		}
	}
	t.slots[at] = nil
	return true
}

func hashUUID(u log.UUID) uint64 {
	return mix(mix(binary.BigEndian.Uint64(u[:])) ^ binary.BigEndian.Uint64(u[8:]))
}

func hashAddr(on uint64, ip netip.Addr) uint64 {
	b := ip.As16()
	return mix(mix(on^binary.BigEndian.Uint64(b[:])) + binary.BigEndian.Uint64(b[8:]))
}

// owners are the NICs of each owner. Most have one, which takes no set.
type owners struct {
	one  rowTable
	many sets[log.UUID]
}

func newOwners() owners {
	return owners{rowTable{hash: func(r *row) uint64 { return hashUUID(r.owner()) }}, sets[log.UUID]{}}
}

func ownedBy(owner log.UUID) func(*row) bool {
	return func(r *row) bool { return r.owner() == owner }
}

func (o *owners) add(owner log.UUID, r *row) {
	if owner.IsZero() {
		return
	}
	if o.many[owner] == nil {
		first := o.one.find(hashUUID(owner), ownedBy(owner))
		if first == nil || first == r {
			o.one.put(r, ownedBy(owner))
			return
		}
		o.one.remove(first)
		o.many.add(owner, first, compareRows)
	}
	o.many.add(owner, r, compareRows)
}

func (o *owners) remove(owner log.UUID, r *row) {
	if o.many[owner] != nil {
		o.many.remove(owner, r)
		return
	}
	if o.one.find(hashUUID(owner), ownedBy(owner)) == r {
		o.one.remove(r)
	}
}

// of returns the NICs of an owner; nil is an empty set.
func (o *owners) of(owner log.UUID) *sorted[*row] {
	if set := o.many[owner]; set != nil {
		return set
	}
	r := o.one.find(hashUUID(owner), ownedBy(owner))
	if r == nil {
		return nil
	}
	return &sorted[*row]{cmp: compareRows, chunks: [][]*row{{r}}, n: 1}
}

func hashIP(r *row) uint64 {
	return hashAddr(hashUUID(r.network()), r.ip())
}

func hashVL3(r *row) uint64 { return hashAddr(uint64(r.home().VNet), r.ip()) }

func hasIP(network log.UUID, ip netip.Addr) func(*row) bool {
	return func(r *row) bool {
		return r.ip() == ip && r.network() == network
	}
}

func hasVL3(vnet uint32, ip netip.Addr) func(*row) bool {
	return func(r *row) bool { return r.ip() == ip && r.home().VNet == vnet }
}

// nicAt returns the NIC that has an address of a network, or nil.
func (s *store) nicAt(network log.UUID, ip netip.Addr) *row {
	return s.ips.find(hashAddr(hashUUID(network), ip), hasIP(network, ip))
}

// nicOnVNet returns the NIC that has an address on a vnet, or nil.
func (s *store) nicOnVNet(vnet uint32, ip netip.Addr) *row {
	return s.vl3.find(hashAddr(uint64(vnet), ip), hasVL3(vnet, ip))
}
