package oracle

import (
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
	"rutter/log"
)

const (
	// SurfaceReused is the surface of a write under the id of another change.
	SurfaceReused = "reused"
	// SurfaceAhead is the surface of a write whose id is of a clock that is an hour ahead.
	SurfaceAhead = "ahead"
	// windowSlack is how much longer than servers remember an id may be in a file: they forget
	// with the next change, by a clock that may be a little off.
	windowSlack = 5 * time.Second
)

// Forgotten reports whether a write was refused because its id is older than those that are
// remembered. Then it may be in the log.
func Forgotten(w seen.Write) bool {
	return w.Outcome == seen.Refused && w.Refusal != nil && w.Refusal.Code == log.CodeTooOld
}

// window looks at what servers remember of change ids.
func window(p *past, report report) {
	clocks := false
	var bounds seen.Remembered
	for _, r := range p.records {
		switch e := r.Event.(type) {
		case seen.Fault:
			clocks = clocks || e.Fault.Kind == history.Skew || e.Fault.Kind == history.Drift
		case seen.Write:
			wrong := e.Surface == SurfaceAhead || e.Surface == SurfaceReused && p.taken(e)
			if wrong && e.Outcome == seen.Accepted && e.Result.Events > 0 {
				report("%s: change %s, whose id is %s, was accepted as %d to %d", r.Who, e.Change.ID, e.Surface, e.Result.First, e.Result.Last)
			}
		case seen.Remembered:
			bounds = e
			if !e.Looked {
				continue
			}
			if e.IDs > e.Count {
				report("%s remembers %d change ids, and is to remember %d", r.Who, e.IDs, e.Count)
			}
			if young := p.young(r.At, e.Age+windowSlack); e.IDs > young && !clocks {
				report("%s remembers %d change ids, and %d were sent within %v", r.Who, e.IDs, young, e.Age+windowSlack)
			}
		}
	}
	if bounds.Age == 0 || clocks || bounds.Count < len(p.changes) {
		return
	}
	for _, c := range p.all() {
		first, ok := c.accepted()
		for _, a := range c.attempts {
			if ok && Forgotten(a.Write) && a.From > first.Until && a.Until-first.From < bounds.Age-time.Second && !p.between(first, a.Write) {
				report("change %s of %s was accepted at %v, and at %v its id was forgotten already", c.id, c.who, first.Until, a.Until)
			}
		}
	}
}

// taken reports whether the id of a write was another change's in the log to which it was written: that
// had been accepted before, and no restore came between.
func (p *past) taken(w seen.Write) bool {
	c := p.changes[w.Change.ID]
	if c == nil {
		return false
	}
	first, ok := c.accepted()
	return ok && first.Until <= w.From && !p.between(first, w)
}

// young counts the change ids that may have been applied within a time before another: those
// that clients sent then, and all that others sent, whose time is not known: servers and nodes
// write too.
func (p *past) young(at, within time.Duration) int {
	ids, sent := make(map[log.UUID]bool), make(map[log.UUID]bool)
	for _, r := range p.records {
		switch e := r.Event.(type) {
		case seen.WriteBegun:
			sent[e.Change.ID] = true
			if r.At <= at && r.At >= at-within {
				ids[e.Change.ID] = true
			}
		case seen.Write:
			sent[e.Change.ID] = true
			if e.From <= at && e.Until >= at-within {
				ids[e.Change.ID] = true
			}
		case seen.Reported:
			ids[e.Change.ID] = true
		}
	}
	for _, e := range p.entries {
		if e.event != nil && !sent[e.event.ChangeID] {
			ids[e.event.ChangeID] = true
		}
	}
	return len(ids)
}

// cursor looks for readers that were given entries although their place is not in the log.
func cursor(p *past, report report) {
	for _, r := range p.records {
		if e, ok := r.Event.(seen.Probe); ok && e.Followed {
			report("%s went on at %s from %s, which is %s", r.Who, e.Server, e.Cursor, e.What)
		}
	}
}
