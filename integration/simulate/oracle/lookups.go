package oracle

import (
	"net/netip"
	"slices"
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/projections"
)

// lookup is an answer of SVP, with the entries as of which it may be.
type lookup struct {
	seen.Lookup
	who         string
	oldest      log.Seq // the last change that the node's bookmark covers
	newest      log.Seq // that the node was sent
	right, same bool    // in between, the node had a right to the vnet, or the log had this answer
}

// lookups compares each answer of SVP with the log: between the node's bookmark before the
// question and the newest entry that the node was sent, there was an entry as of which the log
// had this answer, and one as of which the vnet concerned the node. A node that does not hold
// all of a vnet may have found nothing. A node whose agent runs answers, unless it is paused.
func lookups(p *past, report report) {
	open := p.lookups(report)
	ends := []log.Seq{0} // of changes
	for _, e := range p.entries {
		if e.event != nil && e.event.More == 0 {
			ends = append(ends, e.Seq)
		}
	}
	for _, l := range open {
		i, found := slices.BinarySearch(ends, l.After.Seq)
		if !found {
			i--
		}
		l.oldest = ends[i]
	}
	slices.SortStableFunc(open, func(a, b *lookup) int { return int(a.oldest) - int(b.oldest) })
	var active []*lookup
	whole := p.states(func(seq log.Seq, state *projections.State) {
		for len(open) > 0 && open[0].oldest <= seq {
			active, open = append(active, open[0]), open[1:]
		}
		active = slices.DeleteFunc(active, func(l *lookup) bool {
			if seq > l.newest && seq > l.oldest {
				l.judge(report)
				return true
			}
			l.compare(state)
			return l.explained()
		})
	})
	if !whole {
		return
	}
	for _, l := range active {
		l.judge(report)
	}
}

// lookups returns the answers of the last timeline, and reports questions without one.
func (p *past) lookups(report report) (all []*lookup) {
	sent := make(map[string]log.Seq)
	held := pauses(p.records)
	note := func(node string, seq log.Seq) { sent[node] = max(sent[node], seq) }
	for _, r := range p.records {
		switch e := r.Event.(type) {
		case seen.Item:
			note(r.Who, e.Seq)
		case seen.Scope:
			note(r.Who, e.AsOf)
		case seen.Bookmark:
			note(r.Who, e.Seq)
		case seen.Lookup:
			switch {
			case e.Err != "":
				if !slices.ContainsFunc(held[e.Node], func(s span) bool { return s.from <= e.Until && e.From <= s.until }) {
					report("%s asked %s at %v where %s of vnet %d is, and had no answer, though its agent ran: %s", r.Who, e.Node, e.From, e.Key, e.VNet, e.Err)
				}
			case len(p.restored) == 0 || e.After.Seq > 0 && !p.elsewhere(e.After.Cluster):
				all = append(all, &lookup{Lookup: e, who: r.Who, newest: max(sent[e.Node], e.After.Seq)})
			}
		}
	}
	return all
}

// span is a time from and until.
type span struct{ from, until time.Duration }

// pauses are when machines were paused, by name.
func pauses(records []seen.Record) map[string][]span {
	all := make(map[string][]span)
	for _, r := range records {
		if e, ok := r.Event.(seen.Fault); ok && e.Fault.Kind == history.Pause && !e.Over {
			all[e.Fault.On] = append(all[e.Fault.On], span{r.At, r.At + e.Fault.For + time.Second})
		}
	}
	return all
}

// compare notes what a state of the log says.
func (l *lookup) compare(state *projections.State) {
	l.right = l.right || state.Interested(l.CN, []log.Scope{log.VNetScope(l.VNet)})
	l.same = l.same || answerOf(state, l.VNet, l.Key) == l.Answer
	if l.Answer == "" { // where the node has no right, it finds nothing
		l.same = l.same || !l.Whole || !state.Interested(l.CN, []log.Scope{log.VNetScope(l.VNet)})
		l.right = true
	}
}

func (l *lookup) explained() bool { return l.right && l.same }

func (l *lookup) judge(report report) {
	switch {
	case !l.same:
		report("%s asked %s at %v where %s of vnet %d is, and was told %q, which the log did not have from %d to %d", l.who, l.Node, l.From, l.Key, l.VNet, l.Answer, l.oldest, l.newest)
	case !l.right:
		report("%s asked %s at %v where %s of vnet %d is, and was told %q, and the vnet did not concern the node from %d to %d", l.who, l.Node, l.From, l.Key, l.VNet, l.Answer, l.oldest, l.newest)
	}
}

// answerOf is what a state says of a MAC or an address on a vnet, in the form of seen.Lookup.
func answerOf(state *projections.State, vnet uint32, key string) string {
	if ip, err := netip.ParseAddr(key); err == nil {
		if mac, at, ok := state.VL3(vnet, ip); ok {
			return seen.LookupAnswer(&mac, at.Addr, at.Port)
		}
		return ""
	}
	mac, err := log.ParseMAC(key)
	if err != nil {
		return ""
	}
	if at, ok := state.VL2(vnet, mac); ok {
		return seen.LookupAnswer(nil, at.Addr, at.Port)
	}
	return ""
}
