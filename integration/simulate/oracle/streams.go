package oracle

import (
	"bytes"
	"net/url"
	"strings"

	"rutter/integration/simulate/seen"
	"rutter/log"
)

// interest says what a compute node may get, and what it must get, of each entry of the log.
type interest struct{ may, must []bool }

// interests follows the state, for those compute nodes that have streams.
func (p *past) interests(cns []log.UUID) map[log.UUID]*interest {
	all := make(map[log.UUID]*interest)
	for _, cn := range cns {
		all[cn] = new(interest)
	}
	whole := p.fold(func(e entry, before, after func(log.UUID, []log.Scope) bool) {
		for cn, in := range all {
			was, is := before(cn, e.event.Scopes), after(cn, e.event.Scopes)
			in.may, in.must = append(in.may, was || is), append(in.must, was && is)
		}
	})
	if !whole {
		return nil
	}
	return all
}

// cnOf returns the compute node of a stream's filter "cn=UUID".
func cnOf(filter string) (log.UUID, bool) {
	text, is := strings.CutPrefix(filter, "cn=")
	if !is {
		return log.UUID{}, false
	}
	cn, err := log.ParseUUID(text)
	return cn, err == nil
}

// filter returns which entries a stream may have and must have; known is false if that cannot
// be said.
func (p *past) filter(text string, interests map[log.UUID]*interest) (may, must func(entry) bool, known bool) {
	if cn, is := cnOf(text); is {
		in := interests[cn]
		if in == nil {
			return nil, nil, false
		}
		return func(e entry) bool { return in.may[e.Seq-1] }, func(e entry) bool { return in.must[e.Seq-1] }, true
	}
	query, err := url.ParseQuery(text)
	if err != nil {
		return nil, nil, false
	}
	for key := range query {
		if key != "kind" && key != "id" {
			return nil, nil, false
		}
	}
	is := func(e entry) bool {
		return e.event != nil && (!query.Has("kind") || e.event.Kind.String() == query.Get("kind")) && (!query.Has("id") || e.event.ID == query.Get("id"))
	}
	return is, is, true
}

// subscriber is one stream through its connections.
type subscriber struct {
	began seen.StreamBegun
	at    log.Seq // of its last item or cursor
	known bool    // at is one that it must go on from
}

// stream compares each stream with the log.
func stream(p *past, report report) {
	interests := p.interests(p.nodes())
	all := make(map[string]*subscriber)
	for n, r := range p.records {
		switch e := r.Event.(type) {
		case seen.Restored:
			for _, s := range all {
				s.known = false // what arrives late of the log before it moves it on
			}
		case seen.StreamBegun:
			before := all[e.Stream]
			if before != nil && before.known && e.After.Seq > before.at && !p.replaced(n, e.After.Seq) {
				report("%s had %d, and went on from %d", e.Stream, before.at, e.After.Seq)
			}
			all[e.Stream] = &subscriber{began: e, at: e.After.Seq, known: e.After.Seq > 0}
		case seen.Item:
			s := all[e.Stream]
			if s == nil {
				report("%s has entry %d before it began", e.Stream, e.Seq)
				continue
			}
			if e.Seq <= s.at {
				report("%s: entry %d came after %d", e.Stream, e.Seq, s.at)
			}
			if !p.replaced(n, e.Seq) {
				p.item(s, e, interests, report)
			}
			s.at, s.known = e.Seq, true
		case seen.Reset:
			if s := all[e.Stream]; s != nil {
				s.at, s.known = 0, false
			}
		case seen.Bookmark:
			if s := all[e.Stream]; s != nil {
				s.at, s.known = max(s.at, e.Seq), true
			}
		}
	}
	p.feeds(report)
}

// item compares an item with the log, and looks for what should have come before it.
func (p *past) item(s *subscriber, e seen.Item, interests map[log.UUID]*interest, report report) {
	at, ok := p.at(e.Seq)
	if !ok {
		return // told reports it
	}
	if e.Bytes != nil && !bytes.Equal(e.Bytes, at.Bytes) {
		report("%s: entry %d has other bytes than the log", e.Stream, e.Seq)
	}
	may, must, known := p.filter(s.began.Filter, interests)
	if !known {
		return
	}
	if _, node := cnOf(s.began.Filter); !node && !may(at) { // of nodes: beyond
		report("%s (%s) has entry %d, which is a %s", e.Stream, s.began.Filter, e.Seq, at.event.Kind)
	}
	if !s.known || s.began.Kind == "feed" {
		return // see feeds
	}
	for seq := max(s.at+1, p.floor()); seq < e.Seq; seq++ {
		if skipped, ok := p.at(seq); ok && must(skipped) {
			report("%s (%s) has entry %d after %d, and not %d", e.Stream, s.began.Filter, e.Seq, s.at, seq)
			return
		}
	}
}

// nodes returns the compute nodes of streams.
func (p *past) nodes() (cns []log.UUID) {
	for _, r := range p.records {
		if e, ok := r.Event.(seen.StreamBegun); ok {
			if cn, is := cnOf(e.Filter); is {
				cns = append(cns, cn)
			}
		}
	}
	return cns
}

// SurfaceLie is the surface of a write that a compute node sends of what is not its own.
const SurfaceLie = "lie"

// lie looks for what compute nodes said of others and servers took.
func lie(p *past, report report) {
	for _, r := range p.records {
		if e, ok := r.Event.(seen.Write); ok && e.Surface == SurfaceLie && e.Outcome == seen.Accepted && e.Result.Events > 0 {
			report("the lie of %s, change %s, was accepted as %d to %d", r.Who, e.Change.ID, e.Result.First, e.Result.Last)
		}
	}
}
