// Package documents declares objects as people write them: one document for each object,
// with names in place of UUIDs where names are unique.
//
// Export makes the documents of what a state has, Resolve finds the object that each
// document means, and Diff makes the operations that bring a state to what the documents
// say. What they would do to the rest of the state is for the caller to ask: it decides the
// operations on a copy. Reading and writing the text of documents is for package source.
//
// A document speaks of the fields that it has. Others stay as they are, and are the
// servers' choice in a new object; null gives a field its zero value. What compute nodes
// report, and what follows from other fields, is in no document.
//
// The package is pure, as package projections is.
package documents

import (
	"fmt"
	"slices"
	"strings"

	"rutter/log"
)

// Document is what people declare of one object.
type Document struct {
	Kind log.Kind
	// Name is the field by which other documents refer to the object (NameField); "" if
	// the kind has none, or the object has no name.
	Name string
	// UUID is the id of the object, of kinds that have such (UUIDField). Without it the
	// object is found by its name, and a new one gets a UUID that follows from that.
	UUID log.UUID
	// Labels are those of the object; nil: the document does not speak of them.
	Labels map[string]string
	// Options are what deciding is asked for beside fields, sorted.
	Options []log.Option
	// Spec are the fields, by the names of Fields: nil, string, Plain, []any of them, or
	// map[string]any of them.
	Spec map[string]any

	// Place is where the document begins, and Lines are those of its fields, by their
	// names. Both are empty of documents that no file has.
	Place Place
	Lines map[string]int
}

// Plain is a value that was written without quotes and is not text by its form, such as
// 42 or true. Its field says what it is.
type Plain string

// Place is a line of a file, from 1 on.
type Place struct {
	File string
	Line int
}

// String returns FILE:LINE, or "" if there is no file.
func (p Place) String() string {
	if p.File == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Problem is what is wrong with a document.
type Problem struct {
	Place   Place
	Subject string // the object, as in network "blue"
	Field   string // "" if it is about the whole document
	Message string
	Remedy  string
}

// Error implements error: the place, the subject, what is wrong, and what to do.
func (p Problem) Error() string {
	var b strings.Builder
	for _, part := range []string{p.Place.String(), p.Subject, p.Field} {
		if part != "" {
			b.WriteString(part + ": ")
		}
	}
	b.WriteString(p.Message)
	if p.Remedy != "" {
		b.WriteString("; " + p.Remedy)
	}
	return b.String()
}

// Problems are all that is wrong with documents.
type Problems []Problem

// maxProblems is how many problems a text names.
const maxProblems = 20

// Error implements error: a line for each problem, of at most maxProblems.
func (p Problems) Error() string {
	var lines []string
	for _, one := range p[:min(len(p), maxProblems)] {
		lines = append(lines, one.Error())
	}
	if n := len(p) - len(lines); n > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(lines, "\n")
}

// orNil returns the problems as an error, nil if there are none.
func (p Problems) orNil() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// Selection is some of the objects of a state: those that have all that it names.
type Selection struct {
	Kinds  []log.Kind        // any of these; nil: any kind that documents declare
	Labels map[string]string // all of these
	Owner  log.UUID          // the owner, or one of the owners; zero: any
}

// IsEmpty reports whether a selection names no label and no owner.
func (s Selection) IsEmpty() bool { return len(s.Labels) == 0 && s.Owner.IsZero() }

// Has reports whether an object is selected.
func (s Selection) Has(o log.Object) bool {
	if len(s.Kinds) > 0 && !slices.Contains(s.Kinds, o.Kind()) {
		return false
	}
	if owner := s.Owner.String(); !s.Owner.IsZero() && !log.FieldHas(o, "owner_uuid", owner) && !log.FieldHas(o, "owner_uuids", owner) {
		return false
	}
	for key, value := range s.Labels {
		if !log.FieldHas(o, labelsField, key+"="+value) {
			return false
		}
	}
	return true
}

// LabelsOf are the labels of an object; nil if it has none.
func LabelsOf(o log.Object) map[string]string {
	texts := log.FieldTexts(o, labelsField)
	if len(texts) == 0 {
		return nil
	}
	labels := make(map[string]string, len(texts))
	for _, text := range texts {
		key, value, _ := strings.Cut(text, "=")
		labels[key] = value
	}
	return labels
}

// labelsField is the JSON name of the field with the labels of an object, each in the form
// KEY=VALUE.
const labelsField = "labels"
