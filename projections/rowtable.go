package projections

import (
	"encoding/binary"
	"net/netip"

	"rutter/log"
)

// rowTable is a hash table of rows by something that each row says of itself:
// arrays of pointers, where a map would keep the key as well. With a million NICs
// that is 16 bytes for each instead of a hundred, and nothing more to wait for:
// who looks a row up reads it anyway.
//
// It grows a part at a time (extendible hashing), because the caller that adds a row waits
// for it: one array of a million rows took half a second to double, on all servers
// at once, and meanwhile nothing was acknowledged.
//
// The highest bits of a hash choose the part. In it, a row's place is the first
// free one from where the lowest bits say, and removing closes the gap. What a
// row says of itself does not change while it is in the table.
//
// Beside the rows stand those bits of their hashes that choose part and place, so that
// neither growing nor a search looks at rows which are not meant, each two waits for memory.
type rowTable struct {
	hash  func(*row) uint64
	parts []*rowPart // none, or 1 << depth; a part of less depth stands at several places
	depth uint8
	n     int
}

// rowPart has the rows whose hashes begin with the same depth bits.
type rowPart struct {
	slots []*row   // a power of two
	marks []uint32 // as many: markOf the row's hash; 0 where there is none
	n     int
	depth uint8
}

func newRowPart(slots int, depth uint8) *rowPart {
	return &rowPart{slots: make([]*row, slots), marks: make([]uint32, slots), depth: depth}
}

// markOf returns what stands beside the row of a hash, and is never 0: the highest
// maxRowDepth bits, a one, and the lowest bits, which are enough for maxRowSlots.
func markOf(hash uint64) uint32 {
	return uint32(hash>>(64-maxRowDepth))<<(32-maxRowDepth) | markOne | uint32(hash)&(markOne-1)
}

const (
	// minRowSlots is the first size of a part; it doubles when three quarters are
	// taken, and from maxRowSlots on it is split in two.
	minRowSlots = 8
	maxRowSlots = 1024
	// markOne is the bit of a mark that is always one, between those that choose the part
	// and those that choose the place. All places follow from marks, so that a table with
	// parts of more slots than the lower bits count (of half a billion rows) is slow, and right.
	markOne = 1 << (31 - maxRowDepth)
)

// part returns the part of a hash; there is one.
func (t *rowTable) part(hash uint64) *rowPart { return t.parts[hash>>(64-t.depth)] }

// find returns the row of a hash that is is true of, or nil.
func (t *rowTable) find(hash uint64, is func(*row) bool) *row {
	if t.n == 0 {
		return nil
	}
	p, mark := t.part(hash), markOf(hash)
	mask := uint32(len(p.marks) - 1)
	for at := mark & mask; p.marks[at] != 0; at = (at + 1) & mask {
		if p.marks[at] == mark && is(p.slots[at]) {
			return p.slots[at]
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
	hash := hashKey(key)
	p, mark := t.part(hash), markOf(hash)
	mask := uint32(len(p.marks) - 1)
	for at := mark & mask; p.marks[at] != 0; at = (at + 1) & mask {
		if p.marks[at] == mark && p.slots[at].hasKey(key) {
			return p.slots[at]
		}
	}
	return nil
}

// add adds r, of which there is no equal.
func (t *rowTable) add(r *row) { t.put(r, func(*row) bool { return false }) }

// put adds r, in the place of the row that is is true of if there is one.
func (t *rowTable) put(r *row, is func(*row) bool) {
	hash := t.hash(r)
	p, mark := t.room(hash), markOf(hash)
	mask := uint32(len(p.marks) - 1)
	at := mark & mask
	for ; p.marks[at] != 0; at = (at + 1) & mask {
		if p.marks[at] == mark && is(p.slots[at]) {
			p.slots[at] = r
			return
		}
	}
	p.slots[at], p.marks[at] = r, mark
	p.n++
	t.n++
}

// room returns the part of a hash, in which there is room for one more.
func (t *rowTable) room(hash uint64) *rowPart {
	if t.parts == nil {
		t.parts = []*rowPart{newRowPart(minRowSlots, 0)}
	}
	for {
		p := t.part(hash)
		switch {
		case p.n < len(p.slots)*3/4:
			return p
		case len(p.slots) < maxRowSlots || p.depth >= maxRowDepth:
			t.double(p)
		default:
			t.split(p, hash)
		}
	}
}

// maxRowDepth bounds the array of parts, whatever hashes come: 1<<20 parts have
// room for half a billion rows.
const maxRowDepth = 20

func (t *rowTable) double(p *rowPart) {
	old := *p
	p.slots, p.marks = make([]*row, 2*len(old.slots)), make([]uint32, 2*len(old.slots))
	for at, mark := range old.marks {
		if mark != 0 {
			p.set(mark, old.slots[at])
		}
	}
}

// split puts two parts in the place of p, the part of hash.
func (t *rowTable) split(p *rowPart, hash uint64) {
	if p.depth == t.depth {
		parts := make([]*rowPart, 0, 2*len(t.parts))
		for _, p := range t.parts {
			parts = append(parts, p, p)
		}
		t.parts, t.depth = parts, t.depth+1
	}
	var halves [2]*rowPart
	for i := range halves {
		halves[i] = newRowPart(len(p.slots), p.depth+1)
	}
	for at, mark := range p.marks {
		if mark != 0 {
			half := halves[mark>>(31-p.depth)&1]
			half.set(mark, p.slots[at])
			half.n++
		}
	}
	places := len(t.parts) >> p.depth // where p stands, from the first on
	first := int(hash>>(64-t.depth)) &^ (places - 1)
	for i := range places {
		t.parts[first+i] = halves[2*i/places]
	}
}

// set puts r, of which there is no equal, where there is room.
func (p *rowPart) set(mark uint32, r *row) {
	mask := uint32(len(p.slots) - 1)
	at := mark & mask
	for p.marks[at] != 0 {
		at = (at + 1) & mask
	}
	p.slots[at], p.marks[at] = r, mark
}

// remove takes r out, and reports whether it, itself, was there.
func (t *rowTable) remove(r *row) bool {
	if t.n == 0 {
		return false
	}
	hash := t.hash(r)
	p, mark := t.part(hash), markOf(hash)
	mask := uint32(len(p.slots) - 1)
	at := mark & mask
	for p.slots[at] != r {
		if p.slots[at] == nil {
			return false
		}
		at = (at + 1) & mask
	}
	t.n--
	p.n--
	for next := (at + 1) & mask; p.slots[next] != nil; next = (next + 1) & mask {
		// The next may close the gap if it does not belong behind it.
		if home := p.marks[next] & mask; (next-home)&mask >= (next-at)&mask {
			p.slots[at], p.marks[at], at = p.slots[next], p.marks[next], next
		}
	}
	p.slots[at], p.marks[at] = nil, 0
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

// sets is an index: for each K a set of rows.
type sets[K comparable] map[K]*sorted[*row]

func (s sets[K]) add(k K, r *row, order func(a, b *row) int) {
	set := s[k]
	if set == nil {
		set = newSorted(order)
		s[k] = set
	}
	set.insert(r)
}

func (s sets[K]) remove(k K, r *row) {
	if set := s[k]; set.remove(r) && set.len() == 0 {
		delete(s, k)
	}
}

// addSet adds r under a UUID that is set.
func addSet(s sets[log.UUID], k log.UUID, r *row) {
	if !k.IsZero() {
		s.add(k, r, compareRows)
	}
}

// NetName is the name of a network where it is unique (NAPI, lib/models/network.js): in
// the cloud, or, of a fabric network, among those of its owner.
type NetName struct {
	Owner log.UUID // of a fabric network; else zero
	Name  string
}

// NameOf returns the name of a network. A fabric has one owner; of several, in a log of
// another program, the first counts.
func NameOf(n *log.Network) NetName {
	name := NetName{Name: n.Name}
	if n.Fabric && len(n.OwnerUUIDs) > 0 {
		name.Owner = n.OwnerUUIDs[0]
	}
	return name
}

// netNames are the networks of each name. Most names have one network, which takes no
// set: some 80 bytes for each network instead of some 300.
type netNames struct {
	one  map[NetName]*row
	many sets[NetName]
}

func newNetNames() netNames { return netNames{map[NetName]*row{}, sets[NetName]{}} }

func (t *netNames) add(name NetName, r *row) {
	if t.many[name] == nil {
		first := t.one[name]
		if first == nil || first == r {
			t.one[name] = r
			return
		}
		delete(t.one, name)
		t.many.add(name, first, compareRows)
	}
	t.many.add(name, r, compareRows)
}

func (t *netNames) remove(name NetName, r *row) {
	if t.many[name] != nil {
		t.many.remove(name, r)
		return
	}
	if t.one[name] == r {
		delete(t.one, name)
	}
}

// of returns the networks of a name; nil is an empty set.
func (t *netNames) of(name NetName) *sorted[*row] {
	if set := t.many[name]; set != nil {
		return set
	}
	r := t.one[name]
	if r == nil {
		return nil
	}
	return &sorted[*row]{cmp: compareRows, chunks: [][]*row{{r}}, n: 1}
}
