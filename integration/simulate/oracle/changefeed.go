package oracle

import (
	"maps"
	"slices"

	"rutter/integration/simulate/seen"
	"rutter/log"
)

// listening is a listener of the change feed since it read everything anew.
type listening struct {
	wants map[string][]string
	at    log.Cursor // of its last item, or of its registration
}

// changefeed compares what listeners are told with the log. A listener that goes on is told of
// everything behind its last item, at any server; one that does not is told why, unless it is
// new. What a restore took away is of another timeline, and no listener goes on into it.
func changefeed(p *past, report report) {
	all := make(map[string]*listening)
	for n, r := range p.records {
		switch e := r.Event.(type) {
		case seen.Registered:
			l := all[r.Who]
			switch {
			case l == nil:
				if e.Resumed {
					report("%s is new, and was told at %v that it goes on at %s", r.Who, r.At, e.At)
				}
			case e.Resumed && e.At.Cluster != l.at.Cluster:
				report("%s was told up to %s, and goes on at %v behind %s, of another timeline", r.Who, l.at, r.At, e.At)
			case e.Resumed && e.At.Seq < l.at.Seq:
				report("%s was told up to %d, and goes on at %v behind %d", r.Who, l.at.Seq, r.At, e.At.Seq)
			case e.Resumed:
				p.untold(r.Who, n, l, e.At.Seq, report)
			case e.Reason == "":
				report("%s was told up to %s, and begins anew at %v without a reason", r.Who, l.at, r.At)
			}
			all[r.Who] = &listening{wants: e.Wants, at: e.At}
		case seen.Told:
			l := all[r.Who]
			if l == nil {
				report("%s was told of %d before it registered", r.Who, e.At.Seq)
				continue
			}
			if e.At.Seq <= l.at.Seq || e.At.Cluster != l.at.Cluster {
				report("%s was told of %s at %v after %s", r.Who, e.At, r.At, l.at)
			}
			p.untold(r.Who, n, l, e.At.Seq-1, report)
			p.told(r.Who, n, l, e, report)
			l.at = e.At
		}
	}
	for _, who := range slices.Sorted(maps.Keys(all)) {
		if l := all[who]; !p.elsewhere(l.at.Cluster) {
			p.untold(who, len(p.records), l, p.head(), report)
		}
	}
}

// untold reports the first entry behind a listener's place, up to a seq, that it wants. n is the
// record by which it should have been told.
func (p *past) untold(who string, n int, l *listening, upTo log.Seq, report report) {
	for seq := max(l.at.Seq+1, p.floor()); seq <= upTo; seq++ {
		if e, ok := p.at(seq); ok && !p.replaced(n, seq) && e.event != nil && seen.Wanted(e.event, l.wants) {
			report("%s was told up to %d, and then not of %d, a %s of %s %s", who, l.at.Seq, seq, e.event.Action, e.event.Kind, e.event.ID)
			return
		}
	}
}

// told compares an item with its entry.
func (p *past) told(who string, n int, l *listening, e seen.Told, report report) {
	at, ok := p.at(e.At.Seq)
	if p.replaced(n, e.At.Seq) || !ok && e.At.Seq < p.floor() {
		return
	}
	switch {
	case !ok || at.event == nil:
		if len(p.entries) > 0 {
			report("%s was told of %d, which the log does not have", who, e.At.Seq)
		}
	case e.At.Chain != at.Hash.Prefix():
		report("%s was told of %s, and the log has %s there", who, e.At, at.Hash.Prefix())
	case e.Resource != at.event.Kind.String() || e.ID != at.event.ID || !slices.Equal(e.Subs, seen.Happened(at.event)):
		report("%s was told of %d as %v of %s %s, and it is %v of %s %s", who, e.At.Seq, e.Subs, e.Resource, e.ID, seen.Happened(at.event), at.event.Kind, at.event.ID)
	case !seen.Wanted(at.event, l.wants):
		report("%s was told of %d, %v of %s %s, which it does not want", who, e.At.Seq, e.Subs, e.Resource, e.ID)
	}
}
