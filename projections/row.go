package projections

import (
	"cmp"
	"net/netip"
	"strings"

	"rutter/log"
)

// row is a record in its table and in the indexes. It stays the same row while
// the object lives; a new state is put into it.
type row struct {
	// obj is the record's log.Object or, in a small state, a *packedNIC of it.
	obj any
	// place is the kind and what fits of the key: most rows are compared by it
	// alone, without a look at their objects. It stays.
	place    uint64
	revision log.Revision
	seq      log.Seq
	// scope is that of a NIC's network, nil while the network is not known; and
	// a fabric or other network's own. Rows of one scope share it.
	scope *log.Scope
	sum   log.Digest // what the record adds to the digests of its scopes
}

// set puts a record into the row, and its sum.
func (s *store) set(r *row, rec Record, sum log.Digest) {
	was, _ := r.obj.(*packedNIC)
	if p := s.pack(rec.Object); p != nil {
		r.obj = p
	} else {
		r.obj = rec.Object
	}
	if was != nil {
		s.shapes.drop(was.shape) // after pack: it may be the same
	}
	r.place, r.revision, r.seq, r.sum = placeOf(rec.Object), rec.Revision, rec.Seq, sum
}

// placeOf returns an object's row.place.
func placeOf(o log.Object) uint64 {
	if nic, ok := o.(*log.NIC); ok {
		return placeOfKey(log.KindNIC, string(nic.MAC[:]))
	}
	if uuid, ok := uuidOf(o); ok {
		return placeOfKey(o.Kind(), string(uuid[:]))
	}
	return placeOfKey(o.Kind(), keyOfObject(o))
}

// placeOfKey orders as (kind, key), of which it has the first 7 bytes.
func placeOfKey(kind log.Kind, key string) uint64 {
	place := uint64(kind)
	for i := range 7 {
		place <<= 8
		if i < len(key) {
			place |= uint64(key[i])
		}
	}
	return place
}

// object returns the row's object; of one that is packed, a new one each time.
func (r *row) object() log.Object {
	switch o := r.obj.(type) {
	case *log.NIC:
		return o
	case *packedNIC:
		return o.unpack()
	default:
		return o.(log.Object)
	}
}

func (r *row) record() Record { return Record{r.object(), r.revision, r.seq} }

// nic is object of a NIC's row.
func (r *row) nic() *log.NIC {
	if n, ok := r.obj.(*log.NIC); ok {
		return n
	}
	return r.obj.(*packedNIC).unpack()
}

func (r *row) kind() log.Kind { return log.Kind(r.place >> 56) }

// home returns the scope of a NIC's network; Type is 0 while that is not known.
func (r *row) home() log.Scope {
	if r.scope == nil {
		return log.Scope{}
	}
	return *r.scope
}

// What follows is of a NIC's row, and takes nothing out of its package.

func (r *row) mac() log.MAC {
	if n, ok := r.obj.(*log.NIC); ok {
		return n.MAC
	}
	return r.obj.(*packedNIC).mac
}

func (r *row) ip() netip.Addr {
	if n, ok := r.obj.(*log.NIC); ok {
		return n.IP
	}
	return r.obj.(*packedNIC).addr()
}

func (r *row) network() log.UUID {
	if n, ok := r.obj.(*log.NIC); ok {
		return n.NetworkUUID
	}
	return r.obj.(*packedNIC).shape.network
}

func (r *row) owner() log.UUID {
	if n, ok := r.obj.(*log.NIC); ok {
		return n.BelongsToUUID
	}
	return r.obj.(*packedNIC).belongsTo
}

// cnUUID is the NIC's cn_uuid, cn the CN that it is on.
func (r *row) cnUUID() log.UUID {
	if n, ok := r.obj.(*log.NIC); ok {
		return n.CNUUID
	}
	return r.obj.(*packedNIC).cn
}

func (r *row) cn() log.UUID {
	if n, ok := r.obj.(*log.NIC); ok {
		return CNOf(n)
	}
	p := r.obj.(*packedNIC)
	if p.cn.IsZero() && p.shape.belongsToType == "server" {
		return p.belongsTo
	}
	return p.cn
}

// key is the row's key in its table: see keyOf.
func (r *row) key() string {
	if p, ok := r.obj.(*packedNIC); ok {
		return string(p.mac[:])
	}
	return keyOfObject(r.obj.(log.Object))
}

// hasKey is r.key() == key without making it.
func (r *row) hasKey(key string) bool {
	switch o := r.obj.(type) {
	case *log.NIC:
		return string(o.MAC[:]) == key
	case *packedNIC:
		return string(o.mac[:]) == key
	case *log.IP:
		ip := o.IP.As16()
		return len(key) == 32 && string(o.NetworkUUID[:]) == key[:16] && string(ip[:]) == key[16:]
	}
	if uuid, ok := uuidOf(r.obj); ok {
		return string(uuid[:]) == key
	}
	return r.key() == key
}

// hashRow is hashKey(r.key()) without making it.
func hashRow(r *row) uint64 {
	switch o := r.obj.(type) {
	case *log.NIC:
		return hashKey(string(o.MAC[:]))
	case *packedNIC:
		return hashKey(string(o.mac[:]))
	}
	if uuid, ok := uuidOf(r.obj); ok {
		return hashKey(string(uuid[:]))
	}
	return hashKey(r.key())
}

// hashKey takes eight bytes at a time.
func hashKey(key string) uint64 {
	h := uint64(len(key))
	for ; len(key) >= 8; key = key[8:] {
		h = mix(h ^ (uint64(key[0])<<56 | uint64(key[1])<<48 | uint64(key[2])<<40 | uint64(key[3])<<32 |
			uint64(key[4])<<24 | uint64(key[5])<<16 | uint64(key[6])<<8 | uint64(key[7])))
	}
	rest := uint64(0)
	for i := range len(key) {
		rest = rest<<8 | uint64(key[i])
	}
	return mix(h + rest)
}

// compareRows orders by kind and then as the texts of the ids do.
func compareRows(a, b *row) int {
	if c := cmp.Compare(a.place, b.place); c != 0 || a.kind() == log.KindNIC {
		return c
	}
	if x, ok := uuidOf(a.obj); ok {
		y, _ := uuidOf(b.obj) // they are of one kind
		return x.Compare(*y)
	}
	if ip, ok := a.obj.(*log.IP); ok {
		other := b.obj.(*log.IP)
		if c := ip.NetworkUUID.Compare(other.NetworkUUID); c != 0 {
			return c
		}
		return ip.IP.Compare(other.IP)
	}
	return strings.Compare(a.key(), b.key())
}

// mix is the finaliser of SplitMix64: each bit of x moves about half of all bits.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

func compareSubnets(a, b *row) int {
	x, y := a.obj.(*log.Network), b.obj.(*log.Network)
	if c := x.Subnet.Addr().Compare(y.Subnet.Addr()); c != 0 {
		return c
	}
	if c := x.Subnet.Bits() - y.Subnet.Bits(); c != 0 {
		return c
	}
	return compareRows(a, b) // a cache may hold two of a subnet for a moment
}
