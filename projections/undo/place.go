package undo

import (
	"cmp"
	"encoding/json"
	"slices"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
)

// place finds an order in which each wish can be fulfilled, by deciding them on the state:
// the last entries first, and what is refused again after the others. What is refused at the
// end is impossible.
func (p *Plan) place(state *projections.State, head log.Seq, wanted []*wish) {
	slices.SortStableFunc(wanted, func(a, b *wish) int { return cmp.Compare(b.seqs[len(b.seqs)-1], a.seqs[len(a.seqs)-1]) })
	f := folding{state: state, head: head}
	defer f.back()
	all := wanted
	for progress := true; progress && len(wanted) > 0; {
		progress = false
		var refused []*wish
		for _, w := range wanted {
			var touched []Object
			if w.why = nil; w.target != nil || f.has(w.object) { // else it went with another object
				touched, w.why = f.try(w)
			}
			if w.why != nil {
				refused = append(refused, w)
				continue
			}
			progress = true
			if len(touched) == 0 { // it follows from the others
				p.Already++
				p.follows(w)
				continue
			}
			p.Steps = append(p.Steps, Step{Ops: w.ops, Seqs: w.seqs, Touched: touched})
		}
		wanted = refused
	}
	for _, w := range all {
		if amended := f.amend(w); amended != nil && w.why == nil {
			wanted = append(wanted, p.amend(&f, amended)...)
		}
	}
	for _, w := range wanted {
		why, remedy := said(w.why)
		if exchanged(w, wanted) {
			remedy = exchangedRemedy
		}
		p.Impossible = append(p.Impossible, Impossible{Object: w.object, Action: w.ops[0].Action, Why: why, Remedy: remedy})
	}
}

// exchangedRemedy is for objects each of which has what another one is to get back.
const exchangedRemedy = "if it exchanged a value with another of these, take the entries back in several runs, the last ones first"

// exchanged reports whether another object of the kind is to be updated and cannot be either.
func exchanged(w *wish, all []*wish) bool {
	return w.ops[0].Action == log.Update && slices.ContainsFunc(all, func(other *wish) bool {
		return other != w && other.object.Kind == w.object.Kind && other.ops[0].Action == log.Update
	})
}

// amend does what a wish still lacks after all steps, because servers set fields of its
// object as others stood when it was done. It returns the wish again if that is refused.
func (p *Plan) amend(f *folding, w *wish) []*wish {
	touched, refusal := f.try(w)
	if w.why = refusal; refusal != nil {
		return []*wish{w}
	}
	if len(touched) > 0 {
		p.Steps = append(p.Steps, Step{Ops: w.ops, Seqs: w.seqs, Touched: touched})
	}
	return nil
}

// follows adds what a wish that follows from the steps takes back to the last of them.
func (p *Plan) follows(w *wish) {
	if n := len(p.Steps); n > 0 {
		p.Already--
		p.Steps[n-1].Seqs = slices.Sorted(slices.Values(slices.Concat(p.Steps[n-1].Seqs, w.seqs)))
	}
}

// said returns what a refusal says first.
func said(r *log.Refusal) (why, remedy string) {
	if len(r.Errors) == 0 {
		return r.Message, ""
	}
	e := r.Errors[0]
	why = e.Field + ": " + e.Message
	if r.Code != log.CodeInvalidParameters {
		why = r.Message + ": " + e.Message
	}
	return why, e.Remedy
}

// folding moves a state over events, and back.
type folding struct {
	state *projections.State
	head  log.Seq
	n     uint64
	past  []projections.Record // what events found; without an object where there was none
	keys  []Object
}

// has reports whether an object is there, after the steps so far.
func (f *folding) has(o Object) bool {
	_, is := f.state.Get(o.Kind, o.ID)
	return is
}

// try decides a wish and applies its events.
func (f *folding) try(w *wish) (touched []Object, refusal *log.Refusal) {
	events, refusal := f.decide(w.ops)
	if refusal != nil {
		return nil, refusal
	}
	if i := len(w.ops) - 1; w.ops[i].Action == log.Create && f.fill(&w.ops[i], w.target, events) {
		if events, refusal = f.decide(w.ops); refusal != nil {
			return nil, refusal
		}
	}
	for _, e := range events {
		f.head++
		rec, _ := f.state.Get(e.Kind, e.ID)
		f.past, f.keys = append(f.past, rec), append(f.keys, Object{Kind: e.Kind, ID: e.ID})
		touched = append(touched, Object{Kind: e.Kind, ID: e.ID, Name: nameOf(e.Object)})
		f.set(e.Kind, e.ID, projections.Record{Object: present(e), Revision: e.Revision, Seq: f.head})
	}
	return touched, nil
}

// amend returns the wish that is left of one that was done; nil: it is as it is to be.
func (f *folding) amend(w *wish) *wish {
	if w.target == nil {
		return nil
	}
	rec, ok := f.state.Get(w.object.Kind, w.object.ID)
	if !ok {
		return nil
	}
	set := differing(people(w.object.Kind), w.target, rec.Object)
	if set == nil {
		return nil
	}
	slices.Sort(set)
	left := *w
	left.ops = []log.Op{{Action: log.Update, Kind: w.object.Kind, ID: w.object.ID, IfSeq: w.ops[0].IfSeq, Set: set, Object: w.target}}
	if len(w.ops) > 1 { // it is made again: the condition is the delete's
		left.ops[0].IfSeq = 0
	}
	return &left
}

func present(e *log.Event) log.Object {
	if e.Action == log.Delete {
		return nil
	}
	return e.Object
}

// fill adds those fields to a create in which deciding chose another value than is wanted,
// and reports whether there are any.
func (f *folding) fill(op *log.Op, target log.Object, events []*log.Event) bool {
	for _, e := range events {
		if e.Action != log.Create || e.Kind != op.Kind || e.ID != target.ID() {
			continue
		}
		more := false
		for _, c := range log.Diff(target, e.Object) {
			if slices.Contains(people(op.Kind), c.Path) && !slices.Contains(op.Set, c.Path) {
				op.Set, more = append(op.Set, c.Path), true
			}
		}
		slices.Sort(op.Set)
		return more
	}
	return false
}

func (f *folding) decide(ops []log.Op) ([]*log.Event, *log.Refusal) {
	f.n++
	c := &log.Change{ID: log.UUID{6: 0x70, 8: 0x80, 13: byte(f.n >> 16), 14: byte(f.n >> 8), 15: byte(f.n)}, Time: f.state.Time(), Seed: f.n, Ops: slices.Clone(ops)}
	for i := range c.Ops {
		c.Ops[i].IfSeq = 0 // what follows from other steps is meant
	}
	events, result := rules.Decide(f.state, c)
	return events, result.Refusal
}

func (f *folding) set(kind log.Kind, id string, r projections.Record) {
	if r.Object == nil {
		f.state.Drop(kind, id)
		return
	}
	_ = f.state.Load(r) // the object came from the state, or from deciding: it is a proper one
}

func (f *folding) back() {
	for i, r := range slices.Backward(f.past) {
		f.set(f.keys[i].Kind, f.keys[i].ID, r)
	}
}

const (
	// maxRequest is what the JSON of one change may have, in bytes: half of what a change
	// may have encoded, as JSON is never that much shorter.
	maxRequest = log.MaxChangeBytes / 2
	// opRequest is what an operation takes in JSON beside its object, in bytes, or more.
	opRequest = 256
)

// Changes are the steps as few changes as the limits allow, in their order: each is done as
// a whole, and needs those before it. newID chooses the id of each.
func (p *Plan) Changes(newID func() log.UUID) []Part {
	var all []Part
	var bytes, ids int
	for i := range p.Steps {
		s := &p.Steps[i]
		more, named := 0, 0
		for _, op := range s.Ops {
			more += opRequest
			if op.Object != nil {
				b, _ := json.Marshal(op.Object) // objects of the log have a JSON form
				more += len(b)
				named += log.IDHeaderBytes + len(op.Object.ID())
			}
			named += log.IDHeaderBytes + len(op.ID)
		}
		n := len(all) - 1
		if n < 0 || len(all[n].Change.Ops)+len(s.Ops) > log.MaxOps || bytes+more > maxRequest || ids+named > log.MaxResultBytes-log.EmptyResultBytes {
			all = append(all, Part{Change: &log.Change{ID: newID()}})
			n, bytes, ids = n+1, 0, 0
		}
		bytes, ids = bytes+more, ids+named
		part := &all[n]
		part.Change.Ops = append(part.Change.Ops, s.Ops...)
		part.Touched = append(part.Touched, s.Touched...)
		part.seqs = append(part.seqs, s.Seqs...)
		part.Change.Reverts = log.RevertsOf(part.seqs)
	}
	return all
}

// Part is one of the changes of a plan.
type Part struct {
	Change *log.Change
	// Touched are the objects of its events, in their order.
	Touched []Object
	seqs    []log.Seq
}

// After brings the conditions of the changes behind one in line with what it was written as:
// they hold for the objects as it left them. It reports whether it became what was planned.
func After(done *Part, first log.Seq, events uint32, rest []Part) bool {
	if int(events) != len(done.Touched) {
		return false
	}
	left := make(map[Object]log.Seq, len(done.Touched))
	for i, o := range done.Touched {
		left[Object{Kind: o.Kind, ID: o.ID}] = first + log.Seq(i)
	}
	for _, part := range rest {
		for i := range part.Change.Ops {
			op := &part.Change.Ops[i]
			if seq, is := left[Object{Kind: op.Kind, ID: op.ID}]; is && op.IfSeq != 0 {
				op.IfSeq = seq
			}
		}
	}
	return true
}
