// Package foresee says what changes would do to a state, without changing it: what of
// them is refused, the events, the objects that would differ, what the kernels of compute
// nodes would have to change for it, and which VMs would reach each other no more.
//
// It owns the comparison. How changes are decided is package rules', what a kernel must
// hold and why a VM reaches another package desired's. Printing it is left to its callers.
package foresee

import (
	"slices"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
)

// Bounds of what is looked at: an Outcome says how much of it that was.
const (
	// MaxRefused is how many refused operations of one change are named.
	MaxRefused = 16
	// MaxNodes is how many compute nodes are compared, those first that the changes name.
	MaxNodes = 256
	// MaxEntries is about how many neighbours and forwarding entries are computed for the
	// nodes that are compared, on each side; the first node is compared in any case.
	MaxEntries = 1 << 19
	// MaxPairs is how many pairs of VMs are traced.
	MaxPairs = 4096
)

// Actions of an Object.
const (
	Create  = "create"
	Update  = "update"
	Delete  = "delete"
	Replace = "replace" // deleted and made again under the same id
)

// Outcome is what changes would do.
type Outcome struct {
	// Head is the seq of the state before the changes.
	Head    log.Seq  `json:"head"`
	Changes []Change `json:"changes"`
	// Objects differ after all changes, by kind and id; also those that follow from others.
	Objects []Object `json:"objects"`
	// Nodes are those whose kernels would change, by UUID, of the NodesLooked that were
	// compared of the NodesConcerned.
	Nodes          []Node `json:"nodes"`
	NodesLooked    int    `json:"nodes_looked_at"`
	NodesConcerned int    `json:"nodes_concerned"`
	// Pairs are those whose reachability would change, of the PairsLooked that were traced
	// of the PairsConcerned. If not all were traced, the latter counts a pair once for each
	// vnet or network that both are on.
	Pairs          []Pair `json:"pairs"`
	PairsLooked    int    `json:"pairs_looked_at"`
	PairsConcerned int    `json:"pairs_concerned"`
}

// Change is what would become of one change.
type Change struct {
	// Result is what the servers would answer, if nothing else came before.
	Result log.Result `json:"result"`
	Events []log.Line `json:"events,omitempty"`
	// Refused are the operations that are at fault, in their order: the first by itself,
	// and each other as it would be decided without those before it, MaxRefused at most.
	// Nothing of a refused change is done.
	Refused []Refused `json:"refused,omitempty"`
}

// Refused is an operation that the servers would refuse.
type Refused struct {
	Op      int          `json:"op"` // its place in the change, from 0; -1: the change itself
	Action  log.Action   `json:"action,omitzero"`
	Kind    log.Kind     `json:"kind,omitzero"`
	ID      string       `json:"id,omitempty"`
	Name    string       `json:"name,omitempty"` // of the object, for people
	Refusal *log.Refusal `json:"refusal"`
}

// Refusals returns how many changes would be refused.
func (o *Outcome) Refusals() (n int) {
	for i := range o.Changes {
		if o.Changes[i].Result.Refusal != nil {
			n++
		}
	}
	return n
}

// Events returns how many events there would be.
func (o *Outcome) Events() (n int) {
	for i := range o.Changes {
		n += len(o.Changes[i].Events)
	}
	return n
}

// Of returns what the changes would do to a state whose last entry is head, one after the
// other: those after a refused one are decided without it. Where a change has no id, time
// or seed, it gets one of its place in the list; addresses and MACs are drawn from these,
// so that those of the servers may be others.
//
// An operation's IfSeq, or IfMatch, may be what the object has in the state, also if an
// earlier change of the list changes the object: then it means what that made of it.
//
// The state is as before when Of returns, and differs meanwhile: nothing else may use it
// at the same time. A change of the cluster's time moves no time here. It costs what
// deciding the changes costs, and the bounds above.
func Of(state *projections.State, head log.Seq, changes []*log.Change) Outcome {
	f := &fold{state: state, head: head, firsts: map[first]projections.Record{}}
	out := Outcome{Head: head, Changes: make([]Change, 0, len(changes)), Objects: []Object{}, Nodes: []Node{}, Pairs: []Pair{}}
	for i, c := range changes {
		out.Changes = append(out.Changes, f.change(stamped(state, c, i)))
	}
	after := newConcern(f)
	f.back()
	before := newConcern(f)
	out.Objects = f.objects()
	f.compareNodes(&out, before, after)
	f.comparePairs(&out, before, after)
	f.drawn(&out, changes)
	return out
}

// stamped returns a change as a leader would stamp it, the ith one.
func stamped(state *projections.State, c *log.Change, i int) *log.Change {
	change := *c
	if change.ID.IsZero() {
		change.ID = log.UUID{6: 0x70, 8: 0x80, 12: byte((i + 1) >> 24), 13: byte((i + 1) >> 16), 14: byte((i + 1) >> 8), 15: byte(i + 1)}
	}
	if change.Time == 0 {
		change.Time = state.Time()
	}
	if change.Seed == 0 {
		change.Seed = uint64(i + 1)
	}
	return &change
}

// step is one event: what it found, and what it left. The other one has no object if the
// event made the object, or deleted it.
type step struct {
	kind          log.Kind
	id            string
	before, after projections.Record
}

// fold moves a state over the events of changes, and back.
type fold struct {
	state *projections.State
	head  log.Seq // after the steps
	steps []step
	// firsts are the objects of the steps as they were before all of them.
	firsts map[first]projections.Record
}

// first names an object.
type first struct {
	kind log.Kind
	id   string
}

// lift makes the conditions of a change that hold before the steps hold after them.
func (f *fold) lift(c *log.Change) {
	cloned := false
	for i := range c.Ops {
		op := &c.Ops[i]
		if op.IfSeq == 0 && op.IfMatch == 0 {
			continue
		}
		is, ok := f.state.Get(op.Kind, op.ID)
		if !ok {
			continue
		}
		was, touched := f.firsts[first{op.Kind, is.Object.ID()}]
		if _, _, met := op.Condition(was.Revision, was.Seq); !touched || !met {
			continue
		}
		if !cloned {
			c.Ops, cloned = slices.Clone(c.Ops), true
			op = &c.Ops[i]
		}
		if op.IfSeq != 0 {
			op.IfSeq = is.Seq
		}
		if op.IfMatch != 0 {
			op.IfMatch = is.Revision
		}
	}
}

// change decides a change and applies its events.
func (f *fold) change(c *log.Change) Change {
	f.lift(c)
	events, result := rules.Decide(f.state, c)
	out := Change{Result: result}
	if result.Refusal != nil {
		out.Refused = f.refused(c, result.Refusal)
		return out
	}
	out.Result.First, out.Result.Last = f.head, f.head
	for i, e := range events {
		f.head++
		if i == 0 {
			out.Result.First = f.head
		}
		out.Result.Last = f.head
		out.Events = append(out.Events, log.Line{Seq: f.head, Event: e})
		s := step{kind: e.Kind, id: e.ID}
		s.before, _ = f.state.Get(e.Kind, e.ID)
		if e.Action != log.Delete {
			s.after = projections.Record{Object: e.Object, Revision: e.Revision, Seq: f.head}
		}
		f.steps = append(f.steps, s)
		if _, touched := f.firsts[first{s.kind, s.id}]; !touched {
			f.firsts[first{s.kind, s.id}] = s.before
		}
		f.set(s, s.after)
	}
	return out
}

func (f *fold) back() {
	for _, s := range slices.Backward(f.steps) {
		f.set(s, s.before)
	}
}

func (f *fold) forward() {
	for _, s := range f.steps {
		f.set(s, s.after)
	}
}

func (f *fold) set(s step, r projections.Record) {
	if r.Object == nil {
		f.state.Drop(s.kind, s.id)
		return
	}
	_ = f.state.Load(r) // the object came from the state, or from deciding: it is a proper one
}

// refused names the operations of a change that are at fault.
func (f *fold) refused(c *log.Change, first *log.Refusal) []Refused {
	if len(c.Ops) == 0 || len(c.Ops) > log.MaxOps {
		return []Refused{{Op: -1, Refusal: first}}
	}
	rest := *c
	rest.Ops = slices.Clone(c.Ops)
	places := make([]int, len(rest.Ops)) // in c
	for i := range places {
		places[i] = i
	}
	var all []Refused
	for refusal := first; refusal != nil && len(all) < MaxRefused; {
		at := f.firstRefused(&rest)
		if at < 0 {
			return append(all, Refused{Op: -1, Refusal: refusal})
		}
		op := &rest.Ops[at]
		r := Refused{Op: places[at], Action: op.Action, Kind: op.Kind, ID: op.ID, Refusal: refusal}
		if r.ID == "" && op.Object != nil {
			r.ID = op.Object.ID()
		}
		if held, ok := f.state.Get(op.Kind, op.ID); ok {
			r.Name = nameOf(f.state, held.Object)
		} else if op.Object != nil {
			r.Name = nameOf(f.state, op.Object)
		}
		all = append(all, r)
		rest.Ops, places = slices.Delete(rest.Ops, at, at+1), slices.Delete(places, at, at+1)
		if len(rest.Ops) == 0 {
			break
		}
		_, result := rules.Decide(f.state, &rest)
		refusal = result.Refusal
	}
	return all
}

// firstRefused returns the place of the operation for which a change is refused: the last
// of the shortest part of it, from its beginning, that is refused. It is -1 if each part
// of it would be accepted.
func (f *fold) firstRefused(c *log.Change) int {
	accepted, refused := 0, len(c.Ops) // numbers of operations
	part := *c
	for refused-accepted > 1 {
		middle := accepted + (refused-accepted)/2
		part.Ops = c.Ops[:middle]
		if _, result := rules.Decide(f.state, &part); result.Refusal != nil {
			refused = middle
		} else {
			accepted = middle
		}
	}
	part.Ops = c.Ops[:refused]
	if _, result := rules.Decide(f.state, &part); result.Refusal == nil {
		return -1
	}
	return refused - 1
}
