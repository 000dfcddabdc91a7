package projections

import (
	"iter"
	"net/netip"

	"rutter/log"
)

// rowKey names an object within a state.
type rowKey struct {
	kind log.Kind
	key  string
}

// Overlay is a State, which is only read, and over it what the operations of a
// change have made of it so far, so that each operation sees those before it.
// Package rules decides on it. It is good until the state changes, and is not safe
// for concurrent use.
type Overlay struct {
	base *State

	top *store
	// gone are the objects of base that are deleted, or stand in top.
	gone map[rowKey]bool
	// freed are, by network, the addresses that base has in use and that the
	// change has given back; some may be in use again in top.
	freed map[log.UUID]*sorted[netip.Addr]
}

// nothing is the top of an overlay on which nothing is put.
var nothing = new(store)

// NewOverlay returns an overlay of s as it is. Put may be called only if puts is true.
func NewOverlay(s *State, puts bool) Overlay {
	v := Overlay{base: s, top: nothing}
	if puts {
		v.top = newStore()
		v.top.under = &s.store
		v.gone, v.freed = map[rowKey]bool{}, map[log.UUID]*sorted[netip.Addr]{}
	}
	return v
}

// State returns the state below.
func (v *Overlay) State() *State { return v.base }

// Get returns the object of an id as a client writes it. The error says that there
// is no such id.
func (v *Overlay) Get(kind log.Kind, id string) (Record, bool, error) {
	key, err := keyOf(kind, id)
	if err != nil {
		return Record{}, false, err
	}
	r, ok := v.find(kind, key)
	return r, ok, nil
}

// Find returns the object of the same kind and id as o.
func (v *Overlay) Find(o log.Object) (Record, bool) { return v.find(o.Kind(), keyOfObject(o)) }

// ByUUID returns an object of a kind whose id is a UUID.
func (v *Overlay) ByUUID(kind log.Kind, uuid log.UUID) (Record, bool) {
	return v.find(kind, string(uuid[:]))
}

// ByName returns an object of a kind whose id is a text, such as a NIC tag.
func (v *Overlay) ByName(kind log.Kind, name string) (Record, bool) { return v.find(kind, name) }

// NIC returns a NIC by its MAC.
func (v *Overlay) NIC(mac log.MAC) (Record, bool) { return v.find(log.KindNIC, string(mac[:])) }

// IP returns the IP object of a network's address.
func (v *Overlay) IP(network log.UUID, ip netip.Addr) (Record, bool) {
	if v.base.table(log.KindIP) == nil && v.top.table(log.KindIP) == nil {
		return Record{}, false
	}
	return v.find(log.KindIP, keyOfIP(network, ip))
}

func (v *Overlay) find(kind log.Kind, key string) (Record, bool) {
	if r := v.top.row(kind, key); r != nil {
		return r.record(), true
	}
	if r := v.base.row(kind, key); r != nil && !v.gone[rowKey{kind, key}] {
		return r.record(), true
	}
	return Record{}, false
}

// Holds reports whether there is an object of o's kind and id.
func (v *Overlay) Holds(o log.Object) bool {
	if v.top.rowOfObject(o) != nil {
		return true
	}
	r := v.base.rowOfObject(o)
	return r != nil && !v.isGone(r)
}

// isGone reports whether a row of base does not stand there any more.
func (v *Overlay) isGone(r *row) bool { return len(v.gone) > 0 && v.gone[rowKey{r.kind(), r.key()}] }

// Objects yields the objects of an index: those of the state below in their order,
// then those that the change made, in theirs.
func (v *Overlay) Objects(x Index) iter.Seq[log.Object] {
	return v.live(func(s *store) iter.Seq[*row] { return x.pick(s).all() })
}

// ZoneBeside yields the other VMs with a VM's zonename.
func (v *Overlay) ZoneBeside(m *log.VM) iter.Seq[log.Object] {
	name := m.Zonename
	own := m.UUID.Is(name) // as nearly all are named: the VM of that UUID is no other
	if own && v.base.zones[name] == nil && v.top.zones[name] == nil {
		return noObjects
	}
	zone := v.live(func(s *store) iter.Seq[*row] {
		if own {
			return s.zones[name].all()
		}
		return s.zone(name)
	})
	return func(yield func(log.Object) bool) {
		for o := range zone {
			if o.(*log.VM).UUID != m.UUID && !yield(o) {
				return
			}
		}
	}
}

func noObjects(func(log.Object) bool) {}

// Neighbours yields the networks whose subnets may overlap with n's, of those
// that may not: the one below, and those that begin within the subnet. Subnets that
// may not overlap are disjoint, so that no other can: O(log n).
func (v *Overlay) Neighbours(n *log.Network) iter.Seq[log.Object] {
	group, ok := subnetGroup(n)
	if !ok {
		return noObjects
	}
	probe := &row{obj: &log.Network{Subnet: netip.PrefixFrom(n.Subnet.Addr(), 0)}, place: placeOfKey(log.KindNetwork, "")}
	return v.live(func(s *store) iter.Seq[*row] {
		return func(yield func(*row) bool) {
			if r, ok := s.subnets[group].below(probe); ok && !yield(r) {
				return
			}
			for r := range s.subnets[group].from(probe) {
				if !n.Subnet.Contains(r.obj.(*log.Network).Subnet.Addr()) || !yield(r) {
					return
				}
			}
		}
	})
}

// live yields the objects that pick finds in the state below and that still
// stand there, then those that it finds in what the change made.
func (v *Overlay) live(pick func(*store) iter.Seq[*row]) iter.Seq[log.Object] {
	return func(yield func(log.Object) bool) {
		for r := range pick(&v.base.store) {
			if !v.isGone(r) && !yield(r.object()) {
				return
			}
		}
		for r := range pick(v.top) {
			if !yield(r.object()) {
				return
			}
		}
	}
}

// Count returns how many objects an index has, exactly if that could be most or
// more. What a change itself touched is all that is looked at one by one.
func (v *Overlay) Count(x Index, most int) int {
	base := x.pick(&v.base.store)
	n := base.len() + x.pick(v.top).len()
	if n < most {
		return n
	}
	for k := range v.gone { // their number is the same in any order
		if r := v.base.row(k.kind, k.key); r != nil && base != nil {
			if chunk, at, found := base.find(r); found && base.chunks[chunk][at] == r {
				n--
			}
		}
	}
	return n
}

// NICAt returns the NIC that has an address of a network, or nil.
func (v *Overlay) NICAt(network log.UUID, ip netip.Addr) *log.NIC {
	if r := v.top.nicAt(network, ip); r != nil {
		return r.nic()
	}
	if r := v.base.nicAt(network, ip); r != nil && !v.isGone(r) {
		return r.nic()
	}
	return nil
}

// FreeFrom returns an address of a network, from ip on, which is free unless one
// of the change's own is there, and below which is none but those of FreedFrom; not
// valid if there is none.
func (v *Overlay) FreeFrom(network log.UUID, ip netip.Addr) netip.Addr {
	return v.top.used[network].free(v.base.used[network].free(ip))
}

// FreedFrom yields the addresses of a network, from ip on, that the change gave
// back; some may be in use again.
func (v *Overlay) FreedFrom(network log.UUID, ip netip.Addr) iter.Seq[netip.Addr] {
	return v.freed[network].from(ip)
}

// Network returns a network, or nil.
func (v *Overlay) Network(uuid log.UUID) *log.Network {
	if r, ok := v.ByUUID(log.KindNetwork, uuid); ok {
		return r.Object.(*log.Network)
	}
	return nil
}

// ScopeOn returns the scope of what is on a network; Type is 0 if it is not known.
func (v *Overlay) ScopeOn(network log.UUID) log.Scope {
	if n := v.Network(network); n != nil {
		return log.ScopeOf(n)
	}
	return log.Scope{}
}

// ScopesOf returns the scopes of an object, sorted.
func (v *Overlay) ScopesOf(o log.Object) []log.Scope { return scopesOf(o, v.ScopeOn, v.vnetsOf) }

// vnetsOf yields the scopes of the vnets on which cn has a NIC.
func (v *Overlay) vnetsOf(cn log.UUID) iter.Seq[log.Scope] {
	if len(v.gone) == 0 && len(v.top.tables) == 0 {
		return v.base.vnetsOf(cn)
	}
	return func(yield func(log.Scope) bool) {
		for o := range v.Objects(NICsOnCN(cn)) {
			scope := v.ScopeOn(o.(*log.NIC).NetworkUUID)
			if scope.Type == log.ScopeVNet && !yield(scope) {
				return
			}
		}
	}
}

// Put lays what an event does over the state below: it turns before, which has no
// object on create, into after, which has none on delete.
func (v *Overlay) Put(before, after Record) {
	if o := before.Object; o != nil {
		k := rowKey{o.Kind(), keyOfObject(o)}
		if v.base.row(k.kind, k.key) != nil && !v.gone[k] {
			v.gone[k] = true
			v.free(o)
		}
		if r := v.top.row(k.kind, k.key); r != nil && after.Object == nil {
			v.top.remove(r)
		}
	}
	if after.Object != nil {
		v.top.put(after, nil)
	}
}

// free notes the address of a NIC, or of an IP object, of base that is taken out
// of sight.
func (v *Overlay) free(o log.Object) {
	var network log.UUID
	var ip netip.Addr
	switch o := o.(type) {
	case *log.NIC:
		network, ip = o.NetworkUUID, o.IP
	case *log.IP:
		network, ip = o.NetworkUUID, o.IP
	}
	if !ip.IsValid() {
		return
	}
	if v.freed[network] == nil {
		v.freed[network] = newSorted(netip.Addr.Compare)
	}
	v.freed[network].insert(ip)
}
