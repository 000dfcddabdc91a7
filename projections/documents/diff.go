package documents

import (
	"errors"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// Verb is what a step does to its object.
type Verb string

// The verbs.
const (
	Create  Verb = "create"
	Update  Verb = "update"
	Replace Verb = "replace" // delete and create, because an immutable field differs
	Delete  Verb = "delete"  // by pruning
)

// Step is what becomes of one object.
type Step struct {
	Verb Verb
	Kind log.Kind
	ID   string
	Name string // of the object; "" if it has none
	// Object is what is declared; nil of a delete.
	Object *Object
	// Before and After are the object as it is and as it is declared; nil if there is none.
	// After lacks what deciding fills in.
	Before, After log.Object
	// Because are the JSON names of the immutable fields that differ, of a replace.
	Because []string
	// Ops are the step's places in Plan.Ops: two of a replace.
	Ops []int
}

// Plan is how a state comes to what documents say.
type Plan struct {
	// Steps are in the order of Kinds, and of one kind in that of the documents; deletes
	// come last.
	Steps []Step
	// Ops are in an order that references allow. Each update and delete has the IfSeq of
	// the object in the state.
	Ops []log.Op
	// Same are the objects that are as they are declared.
	Same []*Object
}

// ErrPruneAll is the error of a selection that would delete all that is not declared.
var ErrPruneAll = errors.New("pruning needs an owner or a label: what has it and is not declared is deleted")

// Diff makes the plan that brings a state to what the objects say. With prune, objects
// that it selects and that no document declares are deleted; ErrPruneAll is returned for a
// selection that names neither a label nor an owner.
func Diff(state *projections.State, objects []*Object, prune *Selection) (*Plan, error) {
	if prune != nil && prune.IsEmpty() {
		return nil, ErrPruneAll
	}
	p := &Plan{}
	for _, kind := range kinds {
		for _, o := range objects {
			if o.Object.Kind() == kind {
				p.add(state, o)
			}
		}
	}
	if prune != nil {
		p.prune(state, objects, *prune)
	}
	if exchanged := p.order(state); len(exchanged) > 0 {
		return nil, Problems{exchange(exchanged)}
	}
	return p, nil
}

// add adds the step of an object, if it needs one.
func (p *Plan) add(state *projections.State, o *Object) {
	step := Step{Verb: Create, Kind: o.Object.Kind(), ID: o.Object.ID(), Object: o, After: o.Object, Before: o.Has.Object}
	if step.Name = o.Document.Name; step.Name == "" && step.Before != nil {
		step.Name = nameOf(step.Before)
	}
	if step.Before == nil {
		if ip, is := o.Object.(*log.IP); is && saysNothing(ip) {
			p.Same = append(p.Same, o)
			return
		}
		step.After = settled(state, log.NewObject(step.Kind), o)
		p.Steps = append(p.Steps, step)
		return
	}
	step.After = settled(state, step.Before, o)
	changed := log.Diff(step.Before, step.After)
	if len(changed) == 0 {
		p.Same = append(p.Same, o)
		return
	}
	step.Verb = Update
	for _, c := range changed {
		if slices.Contains(step.Kind.Describe().Immutable, c.Path) {
			step.Verb, step.Because = Replace, append(step.Because, c.Path)
		}
	}
	p.Steps = append(p.Steps, step)
}

// saysNothing reports whether an address carries nothing: then there is no object of it.
func saysNothing(ip *log.IP) bool {
	return !ip.Reserved && ip.BelongsToType == "" && ip.BelongsToUUID.IsZero() && ip.OwnerUUID.IsZero() && len(ip.Labels) == 0
}

// prune adds the deletes of selected objects that are not declared.
func (p *Plan) prune(state *projections.State, objects []*Object, selection Selection) {
	declared := make(map[string]bool, len(objects))
	for _, o := range objects {
		declared[o.Object.Kind().String()+" "+o.Object.ID()] = true
	}
	for i := len(kinds) - 1; i >= 0; i-- {
		for rec := range state.List(kinds[i]) {
			o := rec.Object
			if !selection.Has(o) || !declaredObject(state, o) || declared[o.Kind().String()+" "+o.ID()] {
				continue
			}
			p.Steps = append(p.Steps, Step{Verb: Delete, Kind: o.Kind(), ID: o.ID(), Name: nameOf(o), Before: o})
		}
	}
	p.Steps = slices.DeleteFunc(p.Steps, func(s Step) bool { return p.goesWithNetwork(s) })
}

// goesWithNetwork reports whether a step deletes an address that goes with its network.
func (p *Plan) goesWithNetwork(s Step) bool {
	ip, is := s.Before.(*log.IP)
	if !is || s.Verb != Delete || !ip.BelongsToUUID.IsZero() && ip.BelongsToType != "other" {
		return false
	}
	return p.deletes(log.KindNetwork, ip.NetworkUUID.String())
}

func (p *Plan) deletes(kind log.Kind, id string) bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Kind == kind && s.ID == id && s.Verb == Delete })
}

// order makes the operations. What must go first goes first: replaced objects, and pruned
// ones that nothing names which stays. Then the rest is made and changed, kind by kind, and
// last goes what was named until then.
//
// It returns the steps for which there is no order, because they exchange values.
func (p *Plan) order(state *projections.State) (exchanged []*Step) {
	var late []int
	for i := len(kinds) - 1; i >= 0; i-- {
		for at := range p.Steps {
			s := &p.Steps[at]
			if s.Kind != kinds[i] || s.Verb != Replace && s.Verb != Delete {
				continue
			}
			if s.Verb == Delete && p.isNamed(state, s) {
				late = append(late, at)
				continue
			}
			p.op(s, deletion(state, s))
		}
	}
	for _, kind := range kinds {
		for _, pass := range []func(*Step) bool{isUpdate, isFixed, isOpen} {
			var of []*Step
			for at := range p.Steps {
				if s := &p.Steps[at]; s.Kind == kind && pass(s) {
					of = append(of, s)
				}
			}
			if len(of) > 1 && isUpdate(of[0]) {
				sorted, more := freeing(of)
				of, exchanged = sorted, append(exchanged, more...)
			}
			for _, s := range of {
				p.op(s, writing(s))
			}
		}
	}
	for _, at := range late {
		p.op(&p.Steps[at], deletion(state, &p.Steps[at]))
	}
	return exchanged
}

// The passes over the steps of one kind: updates, which free what new objects may need;
// new objects; and NICs whose address deciding chooses among those that are left.
func isUpdate(s *Step) bool { return s.Verb == Update }

func isFixed(s *Step) bool { return (s.Verb == Create || s.Verb == Replace) && !isOpen(s) }

func isOpen(s *Step) bool {
	nic, is := s.After.(*log.NIC)
	return is && (s.Verb == Create || s.Verb == Replace) && !nic.IP.IsValid()
}

// op adds an operation of a step.
func (p *Plan) op(s *Step, op log.Op) {
	s.Ops = append(s.Ops, len(p.Ops))
	p.Ops = append(p.Ops, op)
}

func deletion(state *projections.State, s *Step) log.Op {
	rec, _ := state.Get(s.Kind, s.ID)
	return log.Op{Action: log.Delete, Kind: s.Kind, ID: s.ID, IfSeq: rec.Seq}
}

// writing is the operation that creates or updates a step's object.
func writing(s *Step) log.Op {
	op := log.Op{Action: log.Create, Kind: s.Kind, Set: s.Object.Set, Object: log.NewObject(s.Kind), Options: s.Object.Document.Options}
	if s.Verb == Update {
		op.Action, op.ID, op.IfSeq, op.Set = log.Update, s.ID, s.Object.Has.Seq, nil
		for _, c := range log.Diff(s.Before, s.After) {
			op.Set = append(op.Set, c.Path)
		}
		if s.Kind == log.KindNIC && slices.Contains(op.Set, "network_uuid") && slices.Contains(s.Object.Set, "ip") && !slices.Contains(op.Set, "ip") {
			op.Set = append(op.Set, "ip") // else deciding draws one on the other network
		}
		slices.Sort(op.Set)
	}
	if s.Verb == Replace {
		op.Set = wholeSet(s.After) // what the document leaves out stays as it was
	}
	log.Assign(op.Object, s.After, op.Set)
	return op
}

// wholeSet are the fields that documents may set and that an object has, with its id.
func wholeSet(o log.Object) (set []string) {
	for _, f := range log.FieldDocs(o.Kind()) {
		if v, _ := log.Field(o, f.Name); f.By == log.SetByPeople && v != nil {
			set = append(set, f.Name)
		}
	}
	slices.Sort(set)
	return set
}

// isNamed reports whether an object that is to be deleted is named by one that stays, in
// the state as it is: that one is changed first.
func (p *Plan) isNamed(state *projections.State, s *Step) bool {
	for _, kind := range kinds {
		for _, f := range log.FieldDocs(kind) {
			if f.Refers != s.Kind && (f.Name != belongsToUUID || s.Kind != log.KindVM && s.Kind != log.KindServer) {
				continue
			}
			for at := range p.Steps {
				other := &p.Steps[at]
				if other.Kind == kind && other.Verb == Update && slices.Contains(log.FieldTexts(other.Before, f.Name), s.ID) {
					return true
				}
			}
		}
	}
	return false
}

// settled is the object as it is declared, on top of what it is, in the form that deciding
// gives it: so that an equal object means that there is nothing to do.
func settled(state *projections.State, before log.Object, o *Object) log.Object {
	after := log.Clone(before)
	log.Assign(after, o.Object, o.Set)
	switch n := after.(type) {
	case *log.Network:
		settleNetwork(state, n, o.Set)
	case *log.NetworkPool:
		n.OwnerUUIDs = sortedUUIDs(n.OwnerUUIDs)
	case *log.NIC:
		settleNIC(state, before.(*log.NIC), n)
	case *log.Aggregation:
		n.NICTagsProvided = slices.Clone(n.NICTagsProvided)
		slices.Sort(n.NICTagsProvided)
		n.NICTagsProvided = slices.Compact(n.NICTagsProvided)
	case *log.IP:
		n.IP = n.IP.Unmap()
		if before.(*log.IP).IP.IsValid() {
			settleIP(state, before.(*log.IP), n)
		}
	}
	for _, f := range log.FieldDocs(after.Kind()) {
		if f.JSON && slices.Contains(o.Set, f.Name) {
			settleJSON(before, after, f.Name)
		}
	}
	return after
}

func sortedUUIDs(uuids []log.UUID) []log.UUID {
	uuids = slices.Clone(uuids)
	slices.SortFunc(uuids, log.UUID.Compare)
	return slices.Compact(uuids)
}

// settleRoutes writes each route in its usual form, sorted by destination.
func settleRoutes(routes log.Routes) log.Routes {
	all := make(log.Routes, 0, len(routes))
	for _, route := range routes {
		if dst, ok := projections.ParseRouteDst(route.Dst); ok {
			if route.Dst = dst.String(); dst.IsSingleIP() {
				route.Dst = dst.Addr().String()
			}
		}
		all = append(all, route)
	}
	slices.SortFunc(all, func(a, b log.Route) int { return strings.Compare(a.Dst, b.Dst) })
	return all
}
