package undo

import (
	"fmt"
	"slices"

	"rutter/log"
)

// track follows one object through the entries from the first chosen one on.
type track struct {
	kind    log.Kind
	id      string
	fields  []string // that people set
	name    string
	entries int // chosen
	seqs    []log.Seq
	last    log.Line

	// target is the object as it would be without the chosen entries; nil: not there.
	target log.Object
	now    log.Object
	begun  bool
	// touched are the fields that chosen entries changed, and what became of them.
	touched map[string]*touch
	whole   *whole
	since   []log.Seq // entries of others that meet chosen ones

	reported       int
	reportedFields map[string]bool
	reportedWhy    string
	why            string // nothing of it can be taken back
}

// touch is a field that a chosen entry changed: the objects that hold its values before and
// after, and whether others changed it since.
type touch struct {
	was, then log.Object
	others    bool
}

// whole is a conflict about the object itself: what it was, nil if it was not there, and
// what became of it, in words.
type whole struct {
	target    log.Object
	was, then string
}

func follow(lines []log.Line, chosen func(log.Seq) bool) ([]*track, error) {
	type key struct {
		kind log.Kind
		id   string
	}
	of := map[key]*track{}
	var all []*track
	for _, l := range lines {
		k := key{l.Event.Kind, l.Event.ID}
		t, mine := of[k], chosen(l.Seq)
		if t == nil {
			if !mine {
				continue
			}
			t = &track{kind: k.kind, id: k.id, fields: people(k.kind), touched: map[string]*touch{}, reportedFields: map[string]bool{}}
			of[k], all = t, append(all, t)
		}
		if err := t.add(l, mine); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (t *track) object() Object { return Object{t.kind, t.id, t.name} }

// add takes the next entry.
func (t *track) add(l log.Line, mine bool) error {
	e := l.Event
	was, now, err := around(e)
	if err != nil {
		t.why = "its entries are of a newer program: " + err.Error()
	}
	t.last = l
	if name := nameOf(e.Object); name != "" {
		t.name = name
	}
	if !t.begun {
		t.begun, t.target = true, was
	}
	if mine {
		t.entries++
	}
	if t.why != "" {
		return nil
	}
	if mine = mine && t.asked(l); mine {
		t.seqs = append(t.seqs, l.Seq)
	}
	switch e.Action {
	case log.Create:
		t.create(l, now, mine)
	case log.Delete:
		t.delete(l, was, mine)
	default:
		t.update(l, was, now, mine)
	}
	return nil
}

// around returns an object before and after an event; nil if it is not there.
func around(e *log.Event) (was, now log.Object, err error) {
	switch e.Action {
	case log.Create:
		return nil, e.Object, nil
	case log.Delete:
		return e.Object, nil, nil
	}
	was, err = log.Revert(e.Object, e.Changed)
	return was, e.Object, err
}

// asked reports whether a chosen entry says what people or programs asked for, by the table
// of kinds and by its author, and notes what it says else.
func (t *track) asked(l log.Line) bool {
	e, d := l.Event, t.kind.Describe()
	switch {
	case !t.kind.Known():
		t.why = "this program does not know the kind: use the servers' release"
		return false
	case d.Final != "" && d.Guarded:
		t.why = d.Final
		return false
	case d.Final != "":
		t.report(d.Final)
		return false
	case len(e.Actor) > len(nodeActor) && e.Actor[:len(nodeActor)] == nodeActor && d.CN != nil:
		t.report("the compute node reported it")
		return false
	case e.Action != log.Update:
		return true
	}
	asked, others := false, false
	for _, c := range e.Changed {
		if slices.Contains(t.fields, c.Path) {
			asked = true
			continue
		}
		others = true
		if !asked || !slices.Contains(log.TimeFields(), c.Path) {
			t.reportedFields[c.Path] = true
		}
	}
	if !asked && others {
		t.report("compute nodes report these fields, or they follow from others")
	}
	return asked
}

func (t *track) report(why string) {
	t.reported++
	t.reportedWhy = why
}

func (t *track) create(l log.Line, now log.Object, mine bool) {
	switch {
	case mine && t.target != nil: // chosen entries deleted it before
		for _, name := range t.differ(t.target, now) {
			t.touched[name] = &touch{was: t.target, then: now}
		}
	case mine:
	case t.target != nil:
		t.whole = &whole{target: t.target, was: "there", then: "deleted"}
		t.since = append(t.since, l.Seq)
		t.target = now
	default:
		t.target = now
	}
}

func (t *track) delete(l log.Line, was log.Object, mine bool) {
	if mine || t.target == nil {
		return
	}
	if len(t.seqs) > 0 {
		t.whole = &whole{target: t.target, was: "there", then: "changed"}
		t.since = append(t.since, l.Seq)
	}
	t.target = nil
}

func (t *track) update(l log.Line, was, now log.Object, mine bool) {
	for _, c := range l.Event.Changed {
		asked := slices.Contains(t.fields, c.Path)
		switch {
		case mine && asked && t.target != nil:
			if f := t.touched[c.Path]; f == nil || f.others {
				t.touched[c.Path] = &touch{was: log.Clone(t.target), then: now}
			} else {
				f.then = now
			}
		case mine && asked: // of what chosen entries made
		case t.target == nil && asked:
			t.whole = &whole{was: "not there", then: "made"}
			t.since = append(t.since, l.Seq)
		case t.target != nil && !(mine && asked):
			t.target = log.Clone(t.target)
			log.Assign(t.target, now, []string{c.Path})
			if f := t.touched[c.Path]; f != nil && asked && !f.others {
				f.others = true
				t.since = append(t.since, l.Seq)
			}
		}
	}
}

// differ are the fields, of those that people set, in which two objects differ.
func (t *track) differ(a, b log.Object) []string { return differing(t.fields, a, b) }

func differing(fields []string, a, b log.Object) (names []string) {
	for _, c := range log.Diff(a, b) {
		if slices.Contains(fields, c.Path) {
			names = append(names, c.Path)
		}
	}
	return names
}

// resolve brings the target in line with what is taken of conflicts, or returns the
// conflict if nothing is.
func (t *track) resolve(take Take) (Conflict, bool) {
	c := Conflict{Object: t.object(), Since: log.RevertsOf(t.since)}
	if w := t.whole; w != nil {
		switch {
		case take == TakeWas:
			t.target = w.target
		case take == TakeNow && t.target == nil:
			t.target = t.now
		case take == TakeNow:
		case w.target == nil && t.now == nil, w.target != nil && t.now != nil && t.differ(w.target, t.now) == nil:
			t.target = t.now // it is as it was
		default:
			c.Was, c.Then, c.Now = w.was, w.then, "changed"
			if t.now == nil {
				c.Now = "deleted"
			} else if w.target != nil {
				c.Now = "made again"
			}
			return c, true
		}
		return c, false
	}
	if t.now == nil || t.target == nil {
		return c, false
	}
	for _, name := range t.fields {
		f := t.touched[name]
		if f == nil || !f.others {
			continue
		}
		was, _ := log.Field(f.was, name)
		then, _ := log.Field(f.then, name)
		now, _ := log.Field(t.now, name)
		if !slices.Contains(t.differ(f.was, t.now), name) {
			continue
		}
		changedBack := !slices.Contains(t.differ(f.then, t.now), name) // by others: nothing of theirs is lost
		if take == TakeWas || take == "" && changedBack {
			t.target = log.Clone(t.target)
			log.Assign(t.target, f.was, []string{name})
		}
		if changedBack && take == "" {
			continue
		}
		c.Fields = append(c.Fields, Field{name, was, then, now})
	}
	return c, take == "" && c.Fields != nil
}

// wish is what an object is to become.
type wish struct {
	object Object
	target log.Object
	ops    []log.Op
	seqs   []log.Seq
	why    *log.Refusal // of the last try
}

// wish returns the operations that make of what there is what is to be; nil if it is that.
// seq is that of the object's last entry.
func (t *track) wish(seq log.Seq) *wish {
	w := &wish{object: t.object(), target: t.target, seqs: t.seqs}
	remove := log.Op{Action: log.Delete, Kind: t.kind, ID: t.id, IfSeq: seq}
	switch {
	case t.target == nil && t.now == nil:
		return nil
	case t.target == nil:
		w.ops = []log.Op{remove}
	case t.now == nil:
		w.ops = []log.Op{t.remake()}
	default:
		set := t.differ(t.target, t.now)
		if set == nil {
			return nil
		}
		slices.Sort(set)
		w.ops = []log.Op{{Action: log.Update, Kind: t.kind, ID: t.id, IfSeq: seq, Set: set, Object: t.target}}
		if slices.ContainsFunc(set, func(name string) bool { return slices.Contains(t.kind.Describe().Immutable, name) }) {
			w.ops = []log.Op{remove, t.remake()}
		}
	}
	return w
}

// remake makes the object again with its id and what people set of it.
func (t *track) remake() log.Op {
	o := log.NewObject(t.kind)
	var set []string
	for _, name := range t.fields {
		if v, _ := log.Field(t.target, name); v != nil && v != false && v != uint64(0) {
			set = append(set, name)
		}
	}
	if d := t.kind.Describe(); d.DrawnField() != "" && !slices.Contains(set, d.DrawnField()) {
		set = append(set, d.DrawnField())
	}
	slices.Sort(set)
	if unknown := log.Assign(o, t.target, set); unknown != "" {
		panic(fmt.Sprintf("undo: %s has no field %s", t.kind, unknown))
	}
	return log.Op{Action: log.Create, Kind: t.kind, Set: set, Object: o}
}
