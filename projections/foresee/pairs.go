package foresee

import (
	"bytes"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections/desired"
)

// What becomes of the way between two VMs.
const (
	Lost     = "lost"     // they reach each other no more
	Gained   = "gained"   // they reach each other, and did not
	Doubtful = "doubtful" // they did, and may not any more: large packets, a missing gateway
)

// Pair is two VMs whose way to each other would change, by what the log gives the kernels.
type Pair struct {
	Change   string   `json:"change"` // Lost, Gained or Doubtful
	From     log.UUID `json:"from"`
	To       log.UUID `json:"to"`
	FromName string   `json:"from_name,omitempty"`
	ToName   string   `json:"to_name,omitempty"`
	// Before and After are verdicts of desired.Trace.
	Before string `json:"before"`
	After  string `json:"after"`
	// Why is the first finding of the trace after the changes, or before them if the pair
	// was gained; Code is its code.
	Why  string `json:"why,omitempty"`
	Code string `json:"code,omitempty"`
}

// couple is two VMs, the lower one first.
type couple struct{ a, b log.UUID }

// comparePairs fills in the pairs. The state is the one before.
func (f *fold) comparePairs(out *Outcome, before, after *concern) {
	couples, concerned := f.couples(before, after)
	out.PairsLooked, out.PairsConcerned = len(couples), concerned
	if len(couples) == 0 {
		return
	}
	was := f.traces(couples)
	f.forward()
	is := f.traces(couples)
	names := map[log.UUID]string{}
	name := func(id log.UUID) {
		if names[id] == "" {
			names[id] = nameOfUUID(f.state, id.String())
		}
	}
	var pairs []Pair
	for i, c := range couples {
		change := changeOf(was[i].Verdict, is[i].Verdict)
		if change == "" {
			continue
		}
		p := Pair{Change: change, From: c.a, To: c.b, Before: was[i].Verdict, After: is[i].Verdict}
		why := &is[i]
		if change == Gained {
			why = &was[i]
		}
		p.Why, p.Code = why.why, why.code
		name(c.a)
		name(c.b)
		pairs = append(pairs, p)
	}
	f.back()
	for i := range pairs {
		p := &pairs[i]
		for _, end := range []struct {
			id   log.UUID
			name *string
		}{{p.From, &p.FromName}, {p.To, &p.ToName}} {
			name(end.id)
			if *end.name = names[end.id]; *end.name != "" {
				p.Why = strings.ReplaceAll(p.Why, end.id.String(), *end.name)
			}
		}
	}
	out.Pairs = append(out.Pairs, pairs...)
}

// changeOf says what two verdicts make of a pair; "" for nothing that is worth saying.
func changeOf(before, after string) string {
	switch {
	case before != desired.Unreachable && after == desired.Unreachable:
		return Lost
	case before == desired.Unreachable && after != desired.Unreachable:
		return Gained
	case before != desired.Doubtful && after == desired.Doubtful:
		return Doubtful
	}
	return ""
}

// traced is what is kept of a trace.
type traced struct{ Verdict, why, code string }

// traces looks at the way between the VMs of each couple in the state as it is.
func (f *fold) traces(couples []couple) []traced {
	all := make([]traced, len(couples))
	for i, c := range couples {
		t := desired.NewTrace(f.state, c.a.String(), c.b.String())
		all[i].Verdict = t.Verdict
		for _, level := range []string{desired.Fault, desired.Doubt} {
			at := slices.IndexFunc(t.Findings, func(x desired.Finding) bool { return x.Level == level })
			if at >= 0 {
				all[i].why, all[i].code = t.Findings[at].Text, t.Findings[at].Code
				break
			}
		}
	}
	return all
}

// couples returns the pairs of VMs that are looked at, MaxPairs at most, and how many there
// are: each VM that is concerned with each other VM of the vnets, or of the other networks,
// that it is on before or after the steps. The state is the one before.
func (f *fold) couples(before, after *concern) (all []couple, concerned int) {
	domains := f.domains(before, after)
	vms := 0
	for _, d := range domains {
		c, n := len(d.concerned), len(d.members)
		concerned += c*(n-c) + c*(c-1)/2
		vms += c
	}
	seen := map[couple]bool{}
	// First each VM gets its share, so that a part of the pairs has all VMs in it.
	share := max(1, MaxPairs/max(1, vms))
	for _, most := range []int{share, MaxPairs} {
		for _, d := range domains {
			for _, a := range d.concerned {
				taken := 0
				for _, b := range d.members {
					if len(seen) == MaxPairs || taken == most {
						break
					}
					c := couple{a, b}
					if bytes.Compare(a[:], b[:]) > 0 {
						c = couple{b, a}
					}
					if a == b || seen[c] {
						continue
					}
					seen[c] = true
					taken++
					all = append(all, c)
				}
			}
		}
	}
	if concerned <= MaxPairs {
		concerned = len(all)
	}
	slices.SortFunc(all, func(x, y couple) int {
		if c := x.a.Compare(y.a); c != 0 {
			return c
		}
		return x.b.Compare(y.b)
	})
	return all, concerned
}

// domain is a vnet, or a network that is on none, with the VMs that have NICs on it.
type domain struct {
	scope              log.Scope
	concerned, members []log.UUID // sorted; the first are among the second
}

// domains returns the places of all VMs that are concerned. The state is the one before.
func (f *fold) domains(before, after *concern) []domain {
	concerned := map[log.Scope]map[log.UUID]bool{}
	for _, c := range []*concern{before, after} {
		for scope, vms := range c.domains {
			if concerned[scope] == nil {
				concerned[scope] = map[log.UUID]bool{}
			}
			for _, vm := range vms {
				concerned[scope][vm] = true
			}
		}
	}
	members := map[log.Scope]map[log.UUID]bool{}
	for scope := range concerned {
		members[scope] = map[log.UUID]bool{}
		f.addMembers(members[scope], scope)
	}
	f.forward()
	for scope := range concerned {
		f.addMembers(members[scope], scope)
	}
	f.back()
	all := make([]domain, 0, len(concerned))
	for scope, vms := range concerned {
		all = append(all, domain{scope, sortedUUIDs(vms), sortedUUIDs(members[scope])})
	}
	slices.SortFunc(all, func(a, b domain) int { return a.scope.Compare(b.scope) })
	return all
}

// addMembers adds the VMs with a NIC in a scope.
func (f *fold) addMembers(members map[log.UUID]bool, scope log.Scope) {
	nics := f.state.NICsOnVNet(scope.VNet)
	if scope.Type == log.ScopeNetwork {
		nics = f.state.NICsOn(scope.ID)
	}
	for r := range nics {
		if nic := r.Object.(*log.NIC); nic.BelongsToType == "zone" && !nic.BelongsToUUID.IsZero() {
			members[nic.BelongsToUUID] = true
		}
	}
}
