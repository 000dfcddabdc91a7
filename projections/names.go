package projections

import (
	"encoding/hex"
	"iter"
	"net/netip"
	"sort"
	"strings"

	"rutter/log"
)

// PlainName returns the name by which people know an object: of a network, a pool, a
// router, a fabric VLAN or an aggregation its name, of a VM its alias, of a server its
// hostname. Others have none, or their name is their id. Names need not be unique.
func PlainName(o log.Object) string {
	switch o := o.(type) {
	case *log.Network:
		return o.Name
	case *log.VM:
		return o.Alias
	case *log.Server:
		return o.Hostname
	case *log.NetworkPool:
		return o.Name
	case *log.Router:
		return o.Name
	case *log.FabricVLAN:
		return o.Name
	case *log.Aggregation:
		return o.Name
	}
	return ""
}

// plainName is a name among those of the objects of one kind.
type plainName struct {
	kind log.Kind
	name string
}

// plainNames are the objects of each PlainName; not in a small state, nor in a draft. Most
// names have one object, which takes no set.
type plainNames struct {
	one  map[plainName]*row
	many sets[plainName]
}

// placeName puts an object into the index by names, or takes it out.
func (s *store) placeName(p placing) {
	if s.plain.one == nil {
		return
	}
	name := plainName{p.row.kind(), PlainName(p.row.object())}
	t := &s.plain
	switch {
	case name.name == "":
	case t.many[name] != nil:
		place(p, t.many, name)
	case !p.put:
		if t.one[name] == p.row {
			delete(t.one, name)
		}
	case t.one[name] == nil || t.one[name] == p.row:
		t.one[name] = p.row
	default:
		t.many.add(name, t.one[name], compareRows)
		t.many.add(name, p.row, compareRows)
		delete(t.one, name)
	}
}

// Named are the objects of a kind with a PlainName. None in a small state.
func Named(kind log.Kind, name string) Index {
	return Index{func(s *store) *sorted[*row] {
		key := plainName{kind, name}
		if set := s.plain.many[key]; set != nil {
			return set
		}
		if r := s.plain.one[key]; r != nil {
			return &sorted[*row]{cmp: compareRows, chunks: [][]*row{{r}}, n: 1}
		}
		return nil
	}}
}

// WithPrefix yields the objects of a kind whose UUID, or MAC, begins with hexadecimal
// digits, in order, at the cost of what it yields; none if digits is something else.
func (s *State) WithPrefix(kind log.Kind, digits string) iter.Seq[Record] {
	digits = strings.ToLower(digits)
	low, err := hex.DecodeString(digits[:min(len(digits), 14)/2*2])
	all := s.tableOrder(kind)
	if err != nil || all == nil {
		return func(func(Record) bool) {}
	}
	first := placeOfKey(kind, string(low))
	return func(yield func(Record) bool) {
		chunk := sort.Search(len(all.chunks), func(i int) bool { c := all.chunks[i]; return c[len(c)-1].place >= first })
		for ; chunk < len(all.chunks); chunk++ {
			c := all.chunks[chunk]
			for at := sort.Search(len(c), func(i int) bool { return c[i].place >= first }); at < len(c); at++ {
				rec := c[at].record()
				id := strings.NewReplacer("-", "", ":", "").Replace(rec.Object.ID())
				if begins := strings.HasPrefix(id, digits); begins && !yield(rec) || !begins && id > digits {
					return
				}
			}
		}
	}
}

// NamedRecords yields the objects of a kind with a PlainName: see Named.
func (s *State) NamedRecords(kind log.Kind, name string) iter.Seq[Record] {
	return records(Named(kind, name).pick(&s.store))
}

// ServersAt yields the servers that are reached at an address (admin_ip).
func (s *State) ServersAt(ip netip.Addr) iter.Seq[Record] {
	return records(ServersAt(ip).pick(&s.store))
}
