package projections

import (
	"slices"

	"rutter/log"
)

// Gain says that a CN's interest gained a scope, or lost it.
type Gain struct {
	CN    log.UUID
	Scope log.Scope
}

func compareGains(a, b Gain) int {
	if c := a.CN.Compare(b.CN); c != 0 {
		return c
	}
	return a.Scope.Compare(b.Scope)
}

// interest counts, for each CN, its NICs on each vnet and on each other
// network. One NIC that comes or goes costs O(log n).
type interest struct {
	counts map[Gain]int
	scopes map[log.UUID]*sorted[log.Scope] // of each CN
	cns    map[log.Scope]*sorted[log.UUID] // of each scope
	// gained and lost are what changed since take; both may name one pair.
	gained, lost []Gain
}

func newInterest() *interest {
	return &interest{
		counts: make(map[Gain]int),
		scopes: make(map[log.UUID]*sorted[log.Scope]),
		cns:    make(map[log.Scope]*sorted[log.UUID]),
	}
}

// add counts a NIC of cn in a scope, and reports whether it is the first.
func (in *interest) add(cn log.UUID, scope log.Scope) bool {
	g := Gain{cn, scope}
	in.counts[g]++
	if in.counts[g] > 1 {
		return false
	}
	if in.scopes[cn] == nil {
		in.scopes[cn] = newSorted(log.Scope.Compare)
	}
	if in.cns[scope] == nil {
		in.cns[scope] = newSorted(log.UUID.Compare)
	}
	in.scopes[cn].insert(scope)
	in.cns[scope].insert(cn)
	in.gained = append(in.gained, g)
	return true
}

// remove takes a NIC of cn out of a scope, and reports whether it was the last.
func (in *interest) remove(cn log.UUID, scope log.Scope) bool {
	g := Gain{cn, scope}
	in.counts[g]--
	if in.counts[g] > 0 {
		return false
	}
	delete(in.counts, g)
	in.scopes[cn].remove(scope)
	if in.scopes[cn].len() == 0 {
		delete(in.scopes, cn)
	}
	in.cns[scope].remove(cn)
	if in.cns[scope].len() == 0 {
		delete(in.cns, scope)
	}
	in.lost = append(in.lost, g)
	return true
}

// take returns what was gained and lost since the last take, sorted, without
// the pairs that came back.
func (in *interest) take() (gained, lost []Gain) {
	gained, lost = in.gained, in.lost
	in.gained, in.lost = nil, nil
	if len(gained) > 0 && len(lost) > 0 {
		// Held now and not before, or the other way round, by the balance of both.
		net := make(map[Gain]int, len(gained)+len(lost))
		for _, g := range gained {
			net[g]++
		}
		for _, g := range lost {
			net[g]--
		}
		gained = slices.DeleteFunc(gained, func(g Gain) bool { return net[g] <= 0 })
		lost = slices.DeleteFunc(lost, func(g Gain) bool { return net[g] >= 0 })
	}
	slices.SortFunc(gained, compareGains)
	slices.SortFunc(lost, compareGains)
	return slices.Compact(gained), slices.Compact(lost)
}
