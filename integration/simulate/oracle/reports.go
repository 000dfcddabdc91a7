package oracle

import (
	"rutter/integration/simulate/seen"
	"rutter/log"
)

// reports compares what compute nodes reported of their NICs with the log: what was accepted is
// there once, where it was said to be, what was refused is not; and what has a node as its author
// is about NICs that were on that node, and are.
func reports(p *past, report report) {
	type place struct{ first, last log.Seq }
	in := make(map[log.UUID]place)
	for _, e := range p.entries {
		if e.event == nil || len(e.event.Actor) < 3 || e.event.Actor[:3] != "cn:" {
			continue
		}
		at, known := in[e.event.ChangeID]
		if known && at.last+1 != e.Seq {
			report("change %s of %s is in the log at %d, and again at %d", e.event.ChangeID, e.event.Actor, at.first, e.Seq)
		}
		if !known {
			at.first = e.Seq
		}
		at.last = e.Seq
		in[e.event.ChangeID] = at
		p.ofNode(e, report)
	}
	maybe := make(map[log.UUID]bool) // an attempt has no outcome, or was accepted
	for n, r := range p.records {
		e, ok := r.Event.(seen.Reported)
		if !ok || len(p.entries) == 0 {
			continue
		}
		at, there := in[e.Change.ID]
		maybe[e.Change.ID] = maybe[e.Change.ID] || e.Outcome != seen.Refused
		created := len(e.Change.Ops) > 0 && e.Change.Ops[0].Action == log.Create
		switch {
		case e.Outcome == seen.Unknown:
		case e.Outcome == seen.Refused:
			if there && !maybe[e.Change.ID] {
				report("%s reported change %s, which was refused at %v (%s), and is in the log at %d", r.Who, e.Change.ID, r.At, e.Err, at.first)
			}
		case p.replaced(n, e.Last) || e.Last > 0 && e.Last < p.floor():
		case !there && created:
			report("%s reported change %s, which was accepted at %v as %d, and is not in the log", r.Who, e.Change.ID, r.At, e.Last)
		case there && at.last != e.Last:
			report("%s reported change %s, which was accepted at %v as %d, and is in the log at %d", r.Who, e.Change.ID, r.At, e.Last, at.last)
		}
	}
}

// ofNode reports an entry of a node about what is not its own.
func (p *past) ofNode(e entry, report report) {
	after, is := e.event.Object.(*log.NIC)
	if !is {
		return // what a NIC brings with it, such as its address
	}
	of := e.event.Actor[3:]
	if e.event.Action != log.Delete && after.CNUUID.String() != of {
		report("entry %d of %s has NIC %s on %s", e.Seq, e.event.Actor, after.MAC, after.CNUUID)
	}
	if e.event.Action == log.Create {
		return
	}
	before := after
	if e.event.Action == log.Update {
		o, err := log.Revert(after, e.event.Changed)
		if err != nil {
			report("entry %d cannot be reverted: %v", e.Seq, err)
			return
		}
		before = o.(*log.NIC)
	}
	if before.CNUUID.String() != of {
		report("entry %d of %s changes NIC %s, which was on %s", e.Seq, e.event.Actor, after.MAC, before.CNUUID)
	}
}
