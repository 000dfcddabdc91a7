package oracle

import (
	"cmp"
	"slices"
	"time"

	"rutter/integration/simulate/seen"
	"rutter/log"
)

// dense looks at each server's log by itself.
func dense(p *past, report report) {
	for _, name := range p.servers() {
		var before log.Entry
		var time log.Time
		var more uint32
		for i, e := range p.logs[name].Entries {
			event, err := e.Event()
			switch {
			case err != nil:
				report("%s cannot read its entry %d: %v", name, e.Seq, err)
				return
			case i > 0 && e.Seq != before.Seq+1:
				report("%s has entry %d after %d", name, e.Seq, before.Seq)
			case (i > 0 || e.Seq == 1) && e.Hash != before.Hash.Next(e.Seq, e.Bytes):
				report("%s has %s as the hash of entry %d, which does not follow from the one before", name, e.Hash, e.Seq)
			case i > 0 && event.Time < time:
				report("%s: the time of entry %d, %s, is before that of the one before, %s", name, e.Seq, event.Time, time)
			case i > 0 && more > 0 && event.More != more-1:
				report("%s: entry %d has %d more of its change behind it, and the one before %d", name, e.Seq, event.More, more)
			}
			before, time, more = e, event.Time, event.More
		}
		if more > 0 {
			report("%s ends at %d within a change", name, before.Seq)
		}
	}
}

// acknowledged compares the answers to writes with the log.
func acknowledged(p *past, report report) {
	if len(p.entries) == 0 {
		return
	}
	there := p.places()
	for _, c := range p.all() {
		refused := false
		for _, a := range c.attempts {
			refused = refused || a.Outcome == seen.Refused && !Forgotten(a.Write)
			if a.Outcome != seen.Accepted || a.Result.Events == 0 || a.Result.First < p.floor() || p.replaced(a.n, a.Result.Last) {
				continue
			}
			if at := there[c.id]; len(at) != int(a.Result.Events) || at[0] != a.Result.First || at[len(at)-1] != a.Result.Last {
				report("change %s of %s was accepted as %d to %d at %v, and the log has it at %v", c.id, c.who, a.Result.First, a.Result.Last, a.Until, at)
			}
		}
		if at := there[c.id]; refused && !c.maybe() && len(at) > 0 {
			if _, accepted := c.accepted(); !accepted {
				report("change %s of %s was refused, and the log has it at %v", c.id, c.who, at)
			}
		}
	}
}

// places returns where the log has each change.
func (p *past) places() map[log.UUID][]log.Seq {
	there := make(map[log.UUID][]log.Seq)
	for _, e := range p.entries {
		if e.event != nil {
			there[e.event.ChangeID] = append(there[e.event.ChangeID], e.Seq)
		}
	}
	return there
}

// once looks for changes that were done again, and for answers that differ.
func once(p *past, report report) {
	done := make(map[log.UUID]bool)
	var before *log.Event
	for _, e := range p.entries {
		if e.event == nil {
			continue
		}
		same := before != nil && before.More > 0 && before.ChangeID == e.event.ChangeID
		if id := e.event.ChangeID; !same {
			if done[id] && !id.IsZero() {
				report("change %s is done again at %d", id, e.Seq)
			}
			done[id] = true
		}
		before = e.event
	}
	for _, c := range p.all() {
		first, ok := c.accepted()
		for _, a := range c.attempts {
			r, f := a.Result, first.Result
			if ok && a.Outcome == seen.Accepted && (r.First != f.First || r.Last != f.Last || r.Events != f.Events || !slices.Equal(r.IDs, f.IDs)) && !p.between(first, a.Write) {
				report("change %s of %s was accepted as %d to %d, and later as %d to %d", c.id, c.who, f.First, f.Last, r.First, r.Last)
			}
			if ok && a.Outcome == seen.Refused && a.From > first.Until && !p.between(first, a.Write) && !Forgotten(a.Write) {
				report("change %s of %s was accepted as %d to %d, and later refused: %v", c.id, c.who, f.First, f.Last, a.Refusal)
			}
		}
	}
}

// between reports whether there was a restore between two writes.
func (p *past) between(a, b seen.Write) bool {
	for _, i := range p.restored {
		if at := p.records[i].At; min(a.From, b.From) <= at && at <= max(a.Until, b.Until) {
			return true
		}
	}
	return false
}

// order compares the order of acknowledged changes with that of the log.
func order(p *past, report report) {
	type done struct {
		c        *change
		from, at time.Duration
		seq      log.Seq
	}
	var byAnswer []done
	for _, c := range p.all() {
		w, ok := c.accepted()
		if at, _ := c.acknowledgement(); ok && w.Result.Events > 0 && len(p.restored) == 0 {
			byAnswer = append(byAnswer, done{c, c.from, at, w.Result.First})
		}
	}
	byCall := slices.Clone(byAnswer)
	slices.SortFunc(byAnswer, func(a, b done) int { return cmp.Compare(a.at, b.at) })
	slices.SortFunc(byCall, func(a, b done) int { return cmp.Compare(a.from, b.from) })
	var highest done
	next := 0
	for _, d := range byCall {
		for ; next < len(byAnswer) && byAnswer[next].at < d.from; next++ {
			if byAnswer[next].seq > highest.seq {
				highest = byAnswer[next]
			}
		}
		if d.seq < highest.seq {
			report("change %s began at %v and stands at %d; %s was acknowledged at %v and stands at %d", d.c.id, d.from, d.seq, highest.c.id, highest.at, highest.seq)
		}
	}
}
