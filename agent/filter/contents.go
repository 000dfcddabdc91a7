package filter

import (
	"cmp"
	"maps"
	"slices"
)

// contents is what our tables hold, apart from the chains and rules that are always the same.
type contents struct {
	ports    map[uint32][]elem // by index; each sorted by compareElems
	segments map[uint32]string // name by index
	peers    map[Peer]bool
	underlay []elem // sorted by compareElems
	// strange are elements that no change makes. Another program added them, and they are
	// removed with the next transaction.
	strange []elem
}

func newContents() contents {
	return contents{ports: map[uint32][]elem{}, segments: map[uint32]string{}, peers: map[Peer]bool{}}
}

func (c contents) state() State {
	s := State{Underlay: underlayOf(c.underlay)}
	for _, index := range slices.Sorted(maps.Keys(c.ports)) {
		s.Ports = append(s.Ports, portOf(index, c.ports[index]))
	}
	for _, index := range slices.Sorted(maps.Keys(c.segments)) {
		s.Segments = append(s.Segments, Segment{Index: index, Name: c.segments[index]})
	}
	s.Peers = slices.SortedFunc(maps.Keys(c.peers), func(a, b Peer) int {
		return cmp.Or(cmp.Compare(a.VNI, b.VNI), a.VTEP.Compare(b.VTEP))
	})
	return s
}

// draft is contents with the changes of a transaction that is not made yet.
type draft struct {
	base     *contents
	ports    map[uint32][]elem // nil: deleted
	segments map[uint32]string // "": deleted
	peers    map[Peer]bool     // false: deleted
	underlay []elem
	replaced bool // underlay is set
}

func newDraft(base *contents) *draft {
	return &draft{base: base, ports: map[uint32][]elem{}, segments: map[uint32]string{}, peers: map[Peer]bool{}}
}

// commit makes the changes in the base.
func (d *draft) commit() {
	for index, elems := range d.ports {
		put(d.base.ports, index, elems, elems != nil)
	}
	for index, name := range d.segments {
		put(d.base.segments, index, name, name != "")
	}
	for peer, there := range d.peers {
		put(d.base.peers, peer, true, there)
	}
	if d.replaced {
		d.base.underlay = d.underlay
	}
	d.base.strange = nil
}

func put[K comparable, V any](m map[K]V, key K, value V, there bool) {
	if there {
		m[key] = value
	} else {
		delete(m, key)
	}
}

// apply adds what a change needs to out, and notes it. The change has been checked.
func (d *draft) apply(c Change, out []message) []message {
	switch {
	case c.SetPort != nil:
		return d.setPort(c.SetPort.Index, c.SetPort.elems(), out)
	case c.DelPort != 0:
		return d.setPort(c.DelPort, nil, out)
	case c.SetSegment != nil:
		return d.setSegment(*c.SetSegment, out)
	case c.DelSegment != 0:
		return d.setSegment(Segment{Index: c.DelSegment}, out)
	case c.AddPeer != nil:
		return d.setPeer(*c.AddPeer, true, out)
	case c.DelPeer != nil:
		return d.setPeer(*c.DelPeer, false, out)
	}
	had := d.base.underlay
	if d.replaced {
		had = d.underlay
	}
	d.underlay, d.replaced = c.SetUnderlay.elems(), true
	return difference(had, d.underlay, out)
}

func (d *draft) setPort(index uint32, want []elem, out []message) []message {
	had, drafted := d.ports[index]
	if !drafted {
		had = d.base.ports[index]
	}
	d.ports[index] = want
	return difference(had, want, out)
}

func (d *draft) setPeer(p Peer, want bool, out []message) []message {
	had, drafted := d.peers[p]
	if !drafted {
		had = d.base.peers[p]
	}
	d.peers[p] = want
	switch {
	case want && !had:
		return append(out, newElem(peerElem(p)))
	case had && !want:
		return append(out, delElem(peerElem(p)))
	}
	return out
}

// setSegment makes or deletes (without a name) the chain of a segment.
func (d *draft) setSegment(s Segment, out []message) []message {
	had, drafted := d.segments[s.Index]
	if !drafted {
		had = d.base.segments[s.Index]
	}
	d.segments[s.Index] = s.Name
	if had == s.Name {
		return out
	}
	if had != "" {
		out = append(out, delChain(netdev, segmentName(s.Index)))
	}
	if s.Name != "" {
		out = append(out, chainMessages(segmentChain(s))...)
	}
	return out
}

func chainMessages(c chainDef) []message {
	out := []message{newChain(c)}
	for _, r := range c.rules {
		out = append(out, newRule(c, r))
	}
	return out
}

// difference adds the messages that turn one list of elements into another. Both are sorted.
func difference(had, want []elem, out []message) []message {
	if len(had) == 0 { // what is made for the first time needs no comparison
		for _, e := range want {
			out = append(out, newElem(e))
		}
		return out
	}
	for _, e := range had {
		if at, found := slices.BinarySearchFunc(want, e, compareElems); !found || want[at] != e {
			out = append(out, delElem(e))
		}
	}
	for _, e := range want {
		if at, found := slices.BinarySearchFunc(had, e, compareElems); !found || had[at] != e {
			out = append(out, newElem(e))
		}
	}
	return out
}

// whole are the messages that fill empty tables.
func (c contents) whole() []message {
	var out []message
	for _, index := range slices.Sorted(maps.Keys(c.ports)) {
		out = difference(nil, c.ports[index], out)
	}
	for _, index := range slices.Sorted(maps.Keys(c.segments)) {
		out = append(out, chainMessages(segmentChain(Segment{Index: index, Name: c.segments[index]}))...)
	}
	for peer := range c.peers {
		out = append(out, newElem(peerElem(peer)))
	}
	return difference(nil, c.underlay, out)
}
