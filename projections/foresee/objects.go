package foresee

import (
	"cmp"
	"fmt"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// Object is an object that would differ.
type Object struct {
	Action string   `json:"action"` // Create, Update, Delete or Replace
	Kind   log.Kind `json:"kind"`
	ID     string   `json:"id"`
	Name   string   `json:"name,omitempty"` // for people
	// Fields are those that differ, in the order of the kind: all that are set of an object
	// that is made or deleted.
	Fields []Field `json:"fields,omitempty"`
}

// Field is one field that would differ.
type Field struct {
	Path string    `json:"path"`
	Old  log.Value `json:"old"`
	New  log.Value `json:"new"`
	// Names are those of the objects that the values name by UUID, for people.
	Names map[string]string `json:"names,omitempty"`
	// Drawn: the servers choose the new value when they decide the change; New is nil.
	Drawn bool `json:"chosen_when_applied,omitempty"`
}

// span is an object before all steps and after them.
type span struct {
	kind          log.Kind
	id            string
	before, after projections.Record
	remade        bool // it was gone in between
}

// spans returns the objects of all steps, in the order of kinds and ids.
func (f *fold) spans() []*span {
	type key struct {
		kind log.Kind
		id   string
	}
	found := map[key]*span{}
	var all []*span
	for _, s := range f.steps {
		k := key{s.kind, s.id}
		is := found[k]
		if is == nil {
			is = &span{kind: s.kind, id: s.id, before: s.before}
			found[k] = is
			all = append(all, is)
		}
		is.after = s.after
		is.remade = is.remade || s.after.Object == nil
	}
	slices.SortFunc(all, func(a, b *span) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.id, b.id))
	})
	return all
}

// objects returns what became of each object. The state is the one before; names of
// objects that the steps make are found by moving it.
func (f *fold) objects() []Object {
	all := []Object{}
	spans := f.spans()
	for _, s := range spans {
		o := Object{Kind: s.kind, ID: s.id}
		was, is := s.before.Object, s.after.Object
		switch {
		case was == nil && is == nil:
			continue // made and deleted again
		case was == nil:
			o.Action, was = Create, log.NewObject(s.kind)
		case is == nil:
			o.Action, is = Delete, log.NewObject(s.kind)
		case s.remade:
			o.Action = Replace
		default:
			o.Action = Update
		}
		if was != nil && is != nil { // else it is of a kind that this program does not know
			for _, changed := range log.Diff(was, is) {
				now, _ := log.Field(is, changed.Path)
				o.Fields = append(o.Fields, Field{Path: changed.Path, Old: changed.Old, New: now})
			}
		}
		if len(o.Fields) == 0 && o.Action == Update {
			continue // changed and changed back
		}
		if s.before.Object != nil {
			o.Name = nameOf(f.state, s.before.Object)
		}
		f.nameValues(&o)
		all = append(all, o)
	}
	f.forward()
	at := 0
	for _, s := range spans {
		if at < len(all) && all[at].Kind == s.kind && all[at].ID == s.id {
			if s.after.Object != nil && all[at].Name == "" {
				all[at].Name = nameOf(f.state, s.after.Object)
			}
			f.nameValues(&all[at])
			at++
		}
	}
	f.back()
	return all
}

// nameValues adds the names of objects that the values of fields name, as far as the state
// has them.
func (f *fold) nameValues(o *Object) {
	for i := range o.Fields {
		field := &o.Fields[i]
		if field.Path == "uuid" {
			continue
		}
		for _, value := range []log.Value{field.Old, field.New} {
			texts, isList := value.([]string)
			if text, is := value.(string); is && !isList {
				texts = []string{text}
			}
			for _, text := range texts {
				if name := nameOfUUID(f.state, text); name != "" {
					if field.Names == nil {
						field.Names = map[string]string{}
					}
					field.Names[text] = name
				}
			}
		}
	}
}

// namedKinds are the kinds whose objects others name by UUID, in the order in which one is
// looked for.
var namedKinds = []log.Kind{log.KindNetwork, log.KindVM, log.KindServer, log.KindNetworkPool}

// nameOfUUID returns the name of the object with a UUID; "" if the text is none, or the
// object has no name.
func nameOfUUID(s *projections.State, text string) string {
	if len(text) != len(log.UUID{}.String()) {
		return ""
	}
	if _, err := log.ParseUUID(text); err != nil {
		return ""
	}
	for _, kind := range namedKinds {
		if r, ok := s.Get(kind, text); ok {
			return nameOf(s, r.Object)
		}
	}
	return ""
}

// nameOf returns what people call an object; "" if that is its id.
func nameOf(s *projections.State, o log.Object) string {
	switch o := o.(type) {
	case *log.NIC:
		name := ""
		if o.IP.IsValid() {
			name = o.IP.String()
		}
		if owner := nameOfUUID(s, o.BelongsToUUID.String()); owner != "" {
			if name != "" {
				name += " "
			}
			name += "of " + owner
		}
		return name
	case *log.IP:
		if n := s.Network(o.NetworkUUID); n != nil {
			return fmt.Sprintf("%s of %s", o.IP, n.Name)
		}
		return o.IP.String()
	}
	for _, field := range []string{"alias", "hostname", "name"} {
		if v, _ := log.Field(o, field); v != nil {
			if name, is := v.(string); is && name != o.ID() {
				return name
			}
			return ""
		}
	}
	return ""
}
