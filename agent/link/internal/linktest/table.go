package linktest

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"

	"rutter/agent/filter"
)

// Table is a filter.Table in memory.
type Table struct {
	Held filter.State
	// Unreadable is what Read returns, if it is set.
	Unreadable error
	// Refuse, if set, may refuse a change.
	Refuse func(filter.Change) error
}

var _ filter.Table = (*Table)(nil)

// Read implements filter.Table.
func (t *Table) Read(context.Context) (filter.State, error) {
	if t.Unreadable != nil {
		return filter.State{}, t.Unreadable
	}
	s := t.Held
	s.Ports, s.Segments, s.Peers = slices.Clone(s.Ports), slices.Clone(s.Segments), slices.Clone(s.Peers)
	return s, nil
}

// Apply implements filter.Table.
func (t *Table) Apply(_ context.Context, changes []filter.Change) []error {
	errs, failed := make([]error, len(changes)), false
	for i, c := range changes {
		if t.Refuse != nil {
			errs[i] = t.Refuse(c)
		}
		if errs[i] != nil {
			failed = true
			continue
		}
		t.apply(c)
	}
	if !failed {
		return nil
	}
	return errs
}

func (t *Table) apply(c filter.Change) {
	s := &t.Held
	byIndex := func(a, b filter.Port) int { return cmp.Compare(a.Index, b.Index) }
	segmentIndex := func(a, b filter.Segment) int { return cmp.Compare(a.Index, b.Index) }
	peer := func(a, b filter.Peer) int { return cmp.Or(cmp.Compare(a.VNI, b.VNI), a.VTEP.Compare(b.VTEP)) }
	switch {
	case c.SetPort != nil:
		s.Ports = set(s.Ports, *c.SetPort, byIndex)
	case c.DelPort != 0:
		s.Ports = unset(s.Ports, filter.Port{Index: c.DelPort}, byIndex)
	case c.SetSegment != nil:
		s.Segments = set(s.Segments, *c.SetSegment, segmentIndex)
	case c.DelSegment != 0:
		s.Segments = unset(s.Segments, filter.Segment{Index: c.DelSegment}, segmentIndex)
	case c.AddPeer != nil:
		s.Peers = set(s.Peers, *c.AddPeer, peer)
	case c.DelPeer != nil:
		s.Peers = unset(s.Peers, *c.DelPeer, peer)
	case c.SetUnderlay != nil:
		s.Underlay = *c.SetUnderlay
	}
}

func set[E any](list []E, e E, compare func(a, b E) int) []E {
	list = append(unset(list, e, compare), e)
	slices.SortFunc(list, compare)
	return list
}

func unset[E any](list []E, e E, compare func(a, b E) int) []E {
	return slices.DeleteFunc(slices.Clone(list), func(other E) bool { return compare(other, e) == 0 })
}

// Has reports whether it takes the packets of a peer.
func (t *Table) Has(vnet uint32, addr netip.Addr) bool {
	return slices.Contains(t.Held.Peers, filter.Peer{VTEP: addr, VNI: vnet})
}

// Counters implements filter.Table.
func (t *Table) Counters(context.Context) (filter.Counters, error) {
	c := filter.Counters{Ports: map[uint32]map[filter.Reason]filter.Count{}}
	for _, p := range t.Held.Ports {
		c.Ports[p.Index] = maps.Clone(map[filter.Reason]filter.Count{})
	}
	return c, nil
}

// Close implements filter.Table.
func (t *Table) Close() error { return nil }
