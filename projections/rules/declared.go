package rules

import (
	"fmt"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// checkDeclared checks what a kind declares of its fields in package log. before is
// nil on create.
func (d *draft) checkDeclared(before, after log.Object, rules *kindRules) {
	for _, r := range rules.Required {
		if v, _ := log.Field(after, r.Field); v != nil && v != uint64(0) {
			continue
		}
		if r.Remedy == "" {
			r.Remedy = "send it"
		}
		d.missing(r.Field, r.Remedy)
	}
	for _, r := range rules.References {
		for _, id := range log.FieldTexts(after, r.Field) {
			if _, ok, err := d.Get(r.Kind, id); !ok || err != nil {
				noun := r.Kind.Describe().Noun
				d.bad(r.Field, fmt.Sprintf("%s \"%s\" does not exist", noun, d.show(id)), fmt.Sprintf("create the %s first", noun))
			}
		}
	}
	for _, field := range rules.Unique {
		values := log.FieldTexts(after, field)
		if before != nil && slices.Equal(values, log.FieldTexts(before, field)) {
			continue
		}
		for _, value := range values {
			d.onlyOne(before, after, field, value)
		}
	}
}

// onlyOne refuses a value of a field that another object of the kind has.
func (d *draft) onlyOne(before, after log.Object, field, value string) {
	for other := range d.Objects(projections.With(after.Kind(), field, value)) {
		if before == nil || other.ID() != before.ID() {
			d.problem(log.FieldError{
				Field: field, Code: log.ElementDuplicate, Message: "Already exists",
				Remedy: "choose another, or update the one there", Type: other.Kind().String(), ID: other.ID(),
			})
			return
		}
	}
}

// referrer is a field whose values are ids of objects of another kind.
type referrer struct {
	kind  log.Kind
	field string
}

// referring are the fields by which objects of any kind name those of a kind.
var referring = func() (by [256][]referrer) {
	for _, kind := range log.Kinds() {
		for _, r := range kind.Describe().References {
			by[r.Kind] = append(by[r.Kind], referrer{kind, r.Field})
		}
	}
	return by
}()

// unreferenced refuses the deletion of an object that others name in a field that is
// declared to be a reference.
func (d *draft) unreferenced(o log.Object) {
	var by []projections.Index
	for _, r := range referring[o.Kind()] {
		by = append(by, projections.With(r.kind, r.field, o.ID()))
	}
	if len(by) > 0 {
		d.unused(o, d.rules(o.Kind()).Noun+" is in use", "take it out of what uses it first", by...)
	}
}
