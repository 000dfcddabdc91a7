package oracle

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"rutter/integration/simulate/seen"
	"rutter/log"
)

// searchTime bounds the search for the order of one object's operations, of real time. A search
// that takes longer says nothing.
const searchTime = 5 * time.Second

// operation is a write of an object's description, or a consistent read of it.
type operation struct {
	write bool
	value string
}

// register is the model of a description, which is "" at first.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		o := input.(operation)
		return o.write || o.value == state, o.value // a read leaves what it read
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
}

// linearizable looks for an order of the operations of each network's description.
func linearizable(p *past, report report) {
	keys := make(map[string][]porcupine.Operation)
	add := func(id string, o operation, from, until time.Duration) {
		keys[id] = append(keys[id], porcupine.Operation{ClientId: len(keys[id]), Input: o, Call: int64(from), Return: int64(until)})
	}
	if len(p.restored) > 0 {
		return
	}
	for _, c := range p.all() {
		until, known := c.acknowledgement()
		if !known {
			until = math.MaxInt64 // it takes effect at the very end, if it never did
		}
		if !known && !c.maybe() {
			continue
		}
		for _, op := range c.ops {
			if n, ok := op.Object.(*log.Network); ok && (op.Action == log.Update && slices.Contains(op.Set, "description")) {
				add(op.ID, operation{true, n.Description}, c.from, until)
			}
		}
	}
	for _, r := range p.records {
		if e, ok := r.Event.(seen.Read); ok && e.Mode == "consistent" && e.Err == "" && e.Found && e.Kind == log.KindNetwork {
			add(e.ID, operation{false, description(e)}, e.From, e.Until)
		}
	}
	for id, operations := range keys {
		if porcupine.CheckOperationsTimeout(register, operations, searchTime) == porcupine.Illegal {
			report("no order explains the %d operations on %s", len(operations), id)
		}
	}
}

func description(e seen.Read) string {
	text, _ := e.Object["description"].(string)
	return text
}

// version is an object from one seq on, until before another.
type version struct {
	seq, until  log.Seq
	revision    log.Revision
	description string
	change      log.UUID
}

// versions returns those of each network that the witness has.
func (p *past) versions() map[string][]version {
	all := make(map[string][]version)
	for _, e := range p.entries {
		if e.event == nil || e.event.Kind != log.KindNetwork {
			continue
		}
		list := all[e.event.ID]
		if len(list) > 0 {
			list[len(list)-1].until = e.Seq
		}
		v := version{seq: e.Seq, until: math.MaxUint64, revision: e.event.Revision, change: e.event.ChangeID}
		if n, ok := e.event.Object.(*log.Network); ok {
			v.description = n.Description
		}
		all[e.event.ID] = append(list, v)
	}
	return all
}

// stale compares each read of a network with the log. A consistent read is no older than any
// change acknowledged, or consistent read answered, before it began; one with a least seq no
// older than that; and none has what no client had begun to write.
func stale(p *past, report report) {
	if p.floor() != 1 || len(p.restored) > 0 {
		return
	}
	versions := p.versions()
	known := p.milestones(versions)
	for _, r := range p.records {
		e, ok := r.Event.(seen.Read)
		if !ok || e.Err != "" || !e.Found || e.Kind != log.KindNetwork {
			continue
		}
		first, last, ok := find(versions[e.ID], e)
		if !ok {
			report("%s read %s at revision %d with %q, which the log never had", r.Who, e.ID, e.Revision, description(e))
			continue
		}
		least := e.MinSeq
		if e.Mode == "consistent" {
			least = max(least, known.before(e.From))
		}
		if last.until <= least {
			report("%s: a read (%s) of %s from %v to %v has what was replaced at %d, and had to have %d", r.Who, e.Mode, e.ID, e.From, e.Until, last.until, least)
		}
		if c := p.changes[first.change]; c != nil && c.from > e.Until {
			report("%s: a read of %s that ended at %v has what was written from %v on", r.Who, e.ID, e.Until, c.from)
		}
	}
}

// find returns the first and the last version that a read can have: the same, if it says which
// revision it has.
func find(versions []version, e seen.Read) (first, last version, ok bool) {
	for _, v := range versions {
		if (e.Revision == 0 || v.revision == e.Revision) && v.description == description(e) {
			if !ok {
				first = v
			}
			last, ok = v, true
		}
	}
	return first, last, ok
}

// milestone says that from a time on a seq is known to be in the log.
type milestone struct {
	at  time.Duration
	seq log.Seq
}

type milestones []milestone // by at; seq rises

// before returns the highest seq that was known before a time.
func (m milestones) before(at time.Duration) log.Seq {
	i, _ := slices.BinarySearchFunc(m, at, func(m milestone, at time.Duration) int { return cmp.Compare(m.at, at) })
	if i == 0 {
		return 0
	}
	return m[i-1].seq
}

// milestones are the acknowledgements of changes, and the answers to consistent reads.
func (p *past) milestones(versions map[string][]version) (all milestones) {
	for _, r := range p.records {
		switch e := r.Event.(type) {
		case seen.Write:
			if e.Outcome == seen.Accepted {
				all = append(all, milestone{e.Until, e.Result.Last})
			}
		case seen.Read:
			if first, _, ok := find(versions[e.ID], e); ok && e.Err == "" && e.Mode == "consistent" {
				all = append(all, milestone{e.Until, first.seq})
			}
		}
	}
	slices.SortFunc(all, func(a, b milestone) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) })
	for i := 1; i < len(all); i++ {
		all[i].seq = max(all[i].seq, all[i-1].seq)
	}
	return all
}
