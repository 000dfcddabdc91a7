package undo

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// Take says which of two values an object gets where others changed, after the chosen
// entries, what these had changed.
type Take string

// What can be taken. Without either, the object is left alone, and the plan has a Conflict.
const (
	TakeWas Take = "was" // what was before the chosen entries: the later change is lost
	TakeNow Take = "now" // what is there now: the chosen entries stay in force there
)

// Plan is what takes entries back.
type Plan struct {
	// Head is the seq that the plan was made at.
	Head log.Seq `json:"head"`
	// Entries is how many were chosen.
	Entries int `json:"entries"`
	// Steps are what has to be done, in the order in which each can be: a step needs those
	// before it.
	Steps []Step `json:"steps"`
	// Conflicts are the objects that others changed since, and of which nothing was taken.
	Conflicts []Conflict `json:"conflicts"`
	// Impossible are what cannot be taken back, by object.
	Impossible []Impossible `json:"impossible"`
	// Skipped are the chosen entries that no person or program asked for.
	Skipped []Skipped `json:"skipped"`
	// Already is how many objects are as they were before the chosen entries.
	Already int `json:"already"`
}

// Step is what has to be done to one object.
type Step struct {
	Ops []log.Op `json:"-"` // one; two if the object is deleted and made again
	// Seqs are the entries that the step takes back, sorted.
	Seqs []log.Seq `json:"seqs"`
	// Touched are the objects of the step's events, in their order.
	Touched []Object `json:"-"`
}

// Object names an object.
type Object struct {
	Kind log.Kind `json:"kind"`
	ID   string   `json:"id"`
	Name string   `json:"name,omitempty"` // for people
}

// Conflict is an object that was changed again after the chosen entries, by others, where
// these had changed it.
type Conflict struct {
	Object
	// Fields are those that both changed; none if the object itself was made or deleted.
	Fields []Field `json:"fields,omitempty"`
	// Was, Then and Now say in words what became of the object itself, if there are no fields.
	Was  string `json:"was,omitempty"`
	Then string `json:"then,omitempty"`
	Now  string `json:"now,omitempty"`
	// Since are the later entries of others.
	Since log.Reverts `json:"since"`
}

// Field is one field, three times.
type Field struct {
	Path string    `json:"path"`
	Was  log.Value `json:"was"`  // before the chosen entries
	Then log.Value `json:"then"` // after them
	Now  log.Value `json:"now"`
}

// Impossible is an object of which the chosen entries cannot be taken back, and why.
type Impossible struct {
	Object
	Action log.Action `json:"action,omitzero"` // that would be needed
	Why    string     `json:"why"`
	Remedy string     `json:"remedy,omitempty"`
}

// Skipped is an object of which chosen entries, or fields of them, are left as they are,
// because a compute node reported them or servers computed them.
type Skipped struct {
	Object
	Entries int      `json:"entries"`
	Fields  []string `json:"fields,omitempty"` // sorted; none: all of the entries
	Why     string   `json:"why"`
}

// nodeActor begins the actor of a compute node's changes.
const nodeActor = "cn:"

// Of computes what takes back the entries that chosen selects. lines are all entries about
// the objects of these, from the first chosen one on, in order; state is the one after the
// last entry of the log, head. take says what an object gets where others changed it since;
// it may return "".
//
// The state is as before when Of returns, and differs meanwhile: nothing else may use it at
// the same time. An error means that lines and state are not of one log at one place.
func Of(state *projections.State, head log.Seq, lines []log.Line, chosen func(log.Seq) bool, take func(log.Kind, string) Take) (*Plan, error) {
	p := &Plan{Head: head, Steps: []Step{}, Conflicts: []Conflict{}, Impossible: []Impossible{}, Skipped: []Skipped{}}
	tracks, err := follow(lines, chosen)
	if err != nil {
		return nil, err
	}
	var wanted []*wish
	for _, t := range tracks {
		p.Entries += t.entries
		rec, ok := state.Get(t.kind, t.id)
		if last := t.last; ok != (last.Event.Action != log.Delete) || ok && rec.Seq != last.Seq {
			return nil, fmt.Errorf("%s %s: the state is not the one after seq %s: the log moved on; try again", t.kind, t.id, last.Seq)
		}
		t.now = rec.Object
		p.skip(t)
		if t.why != "" {
			p.Impossible = append(p.Impossible, Impossible{Object: t.object(), Why: t.why})
			continue
		}
		if len(t.seqs) == 0 {
			continue
		}
		if c, is := t.resolve(take(t.kind, t.id)); is {
			p.Conflicts = append(p.Conflicts, c)
			continue
		}
		if w := t.wish(rec.Seq); w != nil {
			wanted = append(wanted, w)
		} else {
			p.Already++
		}
	}
	p.place(state, head, wanted)
	return p, nil
}

// skip notes what of a track is left as it is.
func (p *Plan) skip(t *track) {
	if t.reported > 0 {
		fields := slices.Sorted(maps(t.reportedFields))
		p.Skipped = append(p.Skipped, Skipped{Object: t.object(), Entries: t.reported, Fields: fields, Why: t.reportedWhy})
	}
}

func maps(set map[string]bool) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for name := range set {
			if !yield(name) {
				return
			}
		}
	}
}

// Refused reports whether the plan must not be carried out as it is.
func (p *Plan) Refused(skipImpossible bool) error {
	var why []string
	if n := len(p.Conflicts); n > 0 {
		why = append(why, fmt.Sprintf("%d objects were changed again since: choose with --take", n))
	}
	if n := len(p.Impossible); n > 0 && !skipImpossible {
		why = append(why, fmt.Sprintf("%d objects cannot be taken back: leave them with --skip-impossible", n))
	}
	if why == nil {
		return nil
	}
	return errors.New(strings.Join(why, "; "))
}

// Reverts are the entries that all steps together take back.
func (p *Plan) Reverts() log.Reverts {
	var all []log.Seq
	for i := range p.Steps {
		all = append(all, p.Steps[i].Seqs...)
	}
	return log.RevertsOf(all)
}

// people are the fields of a kind that people and programs set, by JSON name.
func people(kind log.Kind) []string {
	var names []string
	for _, d := range log.FieldDocs(kind) {
		if d.By == log.SetByPeople {
			names = append(names, d.Name)
		}
	}
	return names
}

// nameOf is what people call an object, or "".
func nameOf(o log.Object) string {
	for _, field := range [...]string{"alias", "hostname", "name"} {
		if name, _ := log.Field(o, field); name != nil && name != o.ID() {
			return fmt.Sprint(name)
		}
	}
	return ""
}
