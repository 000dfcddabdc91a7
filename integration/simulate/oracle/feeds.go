package oracle

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/projections"
)

// moment is what is compared of the witness's state at one seq.
type moment struct {
	digests []digestAt
	scopes  []scopeAt
}

type digestAt struct {
	n      int
	who    string
	scope  log.Scope
	digest log.Digest
}

type scopeAt struct {
	n   int
	who string
	seen.Scope
}

// wishes are the times at which a compute node wants scopes: from the first seq to the last, of
// the states after changes. The last of an interval that is open is 0.
type wishes map[log.Scope][][2]log.Seq

// wanted reports whether a scope was wanted without a break from a seq to another.
func (w wishes) wanted(scope log.Scope, from, to log.Seq) bool {
	return slices.ContainsFunc(w[scope], func(span [2]log.Seq) bool {
		return span[0] <= from && (span[1] == 0 || to <= span[1])
	})
}

// feeds compares the streams of compute nodes with the witness: scopes and digests byte by byte,
// and at each bookmark what must have come.
func (p *past) feeds(report report) {
	moments := p.moments()
	all := make(map[log.UUID]wishes)
	for _, cn := range p.nodes() {
		all[cn] = make(wishes)
	}
	if len(all) == 0 || !p.states(func(seq log.Seq, state *projections.State) {
		for cn, w := range all {
			w.look(seq, state.Interest(cn))
		}
		if m := moments[seq]; m != nil {
			p.compare(seq, state, m, report)
		}
	}) {
		return
	}
	held := make(map[string]*holder)
	for n, r := range p.records {
		switch e := r.Event.(type) {
		case seen.StreamBegun:
			delete(held, e.Stream)
			if cn, is := cnOf(e.Filter); is && e.Kind == "feed" {
				held[e.Stream] = &holder{name: e.Stream, wishes: all[cn], held: maps.Clone(e.Held), at: e.After.Seq, got: make(map[log.Seq]bool)}
			}
		case seen.Reset:
			if h := held[e.Stream]; h != nil {
				clear(h.held)
				h.at = 0
			}
		case seen.Scope:
			if h := held[e.Stream]; h != nil && e.Dropped {
				delete(h.held, e.Scope)
			} else if h != nil {
				h.held[e.Scope] = e.AsOf
			}
		case seen.Item:
			if h := held[e.Stream]; h != nil {
				h.got[e.Seq] = true
			}
		case seen.Bookmark:
			if h := held[e.Stream]; h != nil {
				if !p.replaced(n, e.Seq) {
					p.bookmarked(h, e, report)
				}
				h.at = e.Seq
				clear(h.got)
			}
		}
	}
	p.mismatches(report)
}

// look notes what a node wants from a seq on.
func (w wishes) look(seq log.Seq, interest []log.Scope) {
	for scope, spans := range w {
		if last := &spans[len(spans)-1]; last[1] == 0 && !slices.Contains(interest, scope) {
			last[1] = seq - 1
		}
	}
	for _, scope := range interest {
		if spans := w[scope]; len(spans) == 0 || spans[len(spans)-1][1] != 0 {
			w[scope] = append(spans, [2]log.Seq{seq, 0})
		}
	}
}

// holder is a compute node during one connection.
type holder struct {
	name   string
	wishes wishes
	held   map[log.Scope]log.Seq
	at     log.Seq // of the cursor, then of the last bookmark
	got    map[log.Seq]bool
}

// bookmarked looks at what a node must have at a bookmark: all scopes that it wants, and each
// entry of a scope that it held all the time.
func (p *past) bookmarked(h *holder, e seen.Bookmark, report report) {
	at, ok := p.at(e.Seq)
	if !ok || at.event == nil || at.event.More > 0 {
		if ok {
			report("%s has a bookmark at %d, within a change", h.name, e.Seq)
		}
		return
	}
	if at.Hash.Prefix() != e.Chain {
		report("%s has a bookmark at %d with %s, and the log has %s there", h.name, e.Seq, e.Chain, at.Hash.Prefix())
	}
	for scope := range h.wishes {
		if _, has := h.held[scope]; !has && h.wishes.wanted(scope, e.Seq, e.Seq) {
			report("%s has the bookmark %d without the scope %s", h.name, e.Seq, scope)
		}
	}
	for scope := range h.held {
		if !h.wishes.wanted(scope, e.Seq, e.Seq) {
			report("%s has the bookmark %d, and still the scope %s, which does not concern it there", h.name, e.Seq, scope)
		}
	}
	for seq := h.at + 1; seq <= e.Seq; seq++ {
		entry, ok := p.at(seq)
		if !ok || entry.event == nil || h.got[seq] {
			continue
		}
		for _, scope := range entry.event.Scopes {
			if asOf, has := h.held[scope]; has && asOf < seq && h.wishes.wanted(scope, min(h.at, seq-1), e.Seq) {
				report("%s has the bookmark %d after %d, and not entry %d of the scope %s", h.name, e.Seq, h.at, seq, scope)
				return
			}
		}
	}
}

// moments are the places at which scopes and digests were sent.
func (p *past) moments() map[log.Seq]*moment {
	all := make(map[log.Seq]*moment)
	at := func(n int, seq log.Seq) *moment {
		if p.replaced(n, seq) {
			return new(moment)
		}
		if all[seq] == nil {
			all[seq] = new(moment)
		}
		return all[seq]
	}
	for n, r := range p.records {
		switch e := r.Event.(type) {
		case seen.Bookmark:
			m := at(n, e.Seq)
			for scope, digest := range e.Digests {
				m.digests = append(m.digests, digestAt{n, e.Stream, scope, digest})
			}
		case seen.Scope:
			if m := at(n, e.AsOf); !e.Dropped {
				m.scopes = append(m.scopes, scopeAt{n, e.Stream, e})
			}
		}
	}
	return all
}

// compare compares what was sent as of a seq with the state there.
func (p *past) compare(seq log.Seq, state *projections.State, m *moment, report report) {
	for _, d := range m.digests {
		if want := state.Digest(d.scope); want != d.digest {
			report("%s got another digest of the scope %s at %d than the log gives", d.who, d.scope, seq)
		}
	}
	encoder := log.NewEncoder()
	of := make(map[log.Scope][]seen.Object)
	for _, s := range m.scopes {
		want, known := of[s.Scope.Scope]
		if !known {
			for r := range state.InScope(s.Scope.Scope) {
				b, err := encoder.Object(r.Object)
				if err != nil {
					report("object %s of the log at %d: %v", r.Object.ID(), seq, err)
					return
				}
				want = append(want, seen.Object{Kind: r.Object.Kind(), ID: r.Object.ID(), Revision: r.Revision, Seq: r.Seq, Bytes: bytes.Clone(b)})
			}
			sortObjects(want)
			of[s.Scope.Scope] = want
		}
		got := slices.Clone(s.Objects)
		sortObjects(got)
		if difference := differ(got, want); difference != "" {
			report("%s got the scope %s as of %d, and %s", s.who, s.Scope.Scope, seq, difference)
		}
	}
}

func sortObjects(all []seen.Object) {
	slices.SortFunc(all, func(a, b seen.Object) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID)) })
}

// differ says how the objects of a scope differ from those of the log; "": they do not.
func differ(got, want []seen.Object) string {
	for i := range min(len(got), len(want)) {
		g, w := got[i], want[i]
		if g.Kind != w.Kind || g.ID != w.ID || g.Revision != w.Revision || g.Seq != w.Seq || !bytes.Equal(g.Bytes, w.Bytes) {
			return fmt.Sprintf("has %s %s of %d where the log has %s %s of %d", g.Kind, g.ID, g.Seq, w.Kind, w.ID, w.Seq)
		}
	}
	if len(got) != len(want) {
		return fmt.Sprintf("has %d objects where the log has %d", len(got), len(want))
	}
	return ""
}

// mismatches looks for agents whose state was not what the server's digest said, although
// no fault damaged their caches.
func (p *past) mismatches(report report) {
	touched, told := make(map[string]bool), make(map[string]bool)
	for _, r := range p.records {
		switch e := r.Event.(type) {
		case seen.Fault:
			if e.Fault.Kind == history.Rot {
				touched[e.Fault.On] = true
			}
		case seen.Agent:
			if e.Mismatches > 0 && !touched[r.Who] && !told[r.Who] {
				told[r.Who] = true
				report("%s found %d digests of scopes that differ from what the stream made of them, at %v", r.Who, e.Mismatches, r.At)
			}
		}
	}
}
