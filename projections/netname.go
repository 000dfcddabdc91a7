package projections

import (
	"cmp"
	"iter"

	"rutter/log"
)

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

// AdminNetwork returns the network that NAPI's clients call admin, or false: the network
// that is no fabric's and has that name.
//
// A log of before log.FeatureTriton may have several. Then the one on the NIC tag admin
// is taken; of several, the one with the most NICs, because all servers have theirs on it,
// and one that was made later has none; then the one that was changed longest ago.
func (s *State) AdminNetwork() (Record, bool) {
	var best Record
	for r := range s.NetworksNamed(NetName{Name: adminName}) {
		if best.Object == nil || s.compareAdmins(r, best) < 0 {
			best = r
		}
	}
	return best, best.Object != nil
}

// adminName is the name and the NIC tag of the admin network.
const adminName = "admin"

func (s *State) compareAdmins(a, b Record) int {
	x, y := a.Object.(*log.Network), b.Object.(*log.Network)
	onTag := func(n *log.Network) int {
		if n.NICTag == adminName {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(onTag(y), onTag(x)),
		cmp.Compare(s.nicsOnNet[y.UUID].len(), s.nicsOnNet[x.UUID].len()),
		cmp.Compare(a.Seq, b.Seq),
		x.UUID.Compare(y.UUID),
	)
}

// NetworksNamed yields the networks of a name.
func (s *State) NetworksNamed(name NetName) iter.Seq[Record] { return records(s.names.of(name)) }
