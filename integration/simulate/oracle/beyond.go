package oracle

import (
	"maps"
	"slices"

	"rutter/integration/simulate/seen"
	"rutter/log"
)

// given is what a compute node holds during one connection, and what it said to hold.
type given struct {
	cn     log.UUID
	held   map[log.Scope]log.Seq
	behind map[log.Scope]log.Seq // what it said, until its first bookmark; nil: it does not count
}

// beyond looks for entries that do not concern the compute node that got them, and for those that
// are in what it holds already.
//
// A node without a certificate of its own that comes back gets what happened in the scopes that it
// holds, although it had no interest for some of that time (package api/feedserver, doubtful). One
// with a certificate does not, in histories that have fewer entries than that package searches.
func beyond(p *past, report report) {
	interests := p.interests(p.nodes())
	all := make(map[string]*given)
	for n, r := range p.records {
		switch e := r.Event.(type) {
		case seen.StreamBegun:
			delete(all, e.Stream)
			if cn, is := cnOf(e.Filter); is {
				g := &given{cn: cn, held: maps.Clone(e.Held)}
				if !e.Known {
					g.behind = e.Held
				}
				all[e.Stream] = g
			}
		case seen.Scope:
			if g := all[e.Stream]; g != nil && e.Dropped {
				delete(g.held, e.Scope)
			} else if g != nil && g.held != nil {
				g.held[e.Scope] = e.AsOf
			}
		case seen.Bookmark:
			if g := all[e.Stream]; g != nil {
				g.behind = nil
			}
		case seen.Reset:
			if g := all[e.Stream]; g != nil {
				g.behind = nil
				clear(g.held)
			}
		case seen.Item:
			g := all[e.Stream]
			at, ok := p.at(e.Seq)
			if g == nil || !ok || at.event == nil || interests == nil || p.replaced(n, e.Seq) {
				continue
			}
			said := func(s log.Scope) bool { _, is := g.behind[s]; return is }
			if !interests[g.cn].may[at.Seq-1] && !slices.ContainsFunc(at.event.Scopes, said) {
				report("%s got entry %d of scopes %v, which does not concern %s", e.Stream, e.Seq, at.event.Scopes, g.cn)
			}
			if scope, twice := g.twice(at); twice {
				report("%s got entry %d of scopes %v, and holds %s as of %d", e.Stream, e.Seq, at.event.Scopes, scope, g.held[scope])
			}
		}
	}
}

// twice reports whether an entry is in a scope that is held as of it or later, and in none that is
// held as of before.
func (g *given) twice(at entry) (has log.Scope, twice bool) {
	for _, scope := range at.event.Scopes {
		asOf, held := g.held[scope]
		if held && asOf < at.Seq {
			return scope, false
		}
		if held {
			has, twice = scope, true
		}
	}
	return has, twice
}
