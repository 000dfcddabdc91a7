package documents

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// resolver is the work of Resolve.
type resolver struct {
	state    *projections.State
	dir      *directory
	drafts   []*draft
	problems Problems
}

// draft is a document on its way to an object.
type draft struct {
	doc *Document
	// fields are by JSON name: JSON values, in which references are still names.
	fields map[string]any
	from   map[string]string // JSON name to the name that the document has
	id     string            // of the object; "" until it is known
	object *Object
	bad    bool
}

func newResolver(state *projections.State, docs []Document) *resolver {
	r := &resolver{state: state, dir: newDirectory(state)}
	for i := range docs {
		d := &draft{doc: &docs[i], fields: make(map[string]any), from: make(map[string]string)}
		r.drafts = append(r.drafts, d)
		r.read(d)
	}
	return r
}

// problem notes what is wrong with a draft.
func (r *resolver) problem(d *draft, field, remedy, format string, args ...any) {
	d.bad = true
	place := d.doc.Place
	if line := d.doc.Lines[field]; line > 0 {
		place.Line = line
	}
	r.problems = append(r.problems, Problem{place, describe(d.doc.Kind, d.doc.Name, ""), field, fmt.Sprintf(format, args...), remedy})
}

// read takes the fields of a document into its draft.
func (r *resolver) read(d *draft) {
	doc := d.doc
	if ok, why := Declared(doc.Kind); !ok {
		r.problem(d, "", "leave it out", "documents do not declare a %s: %s", doc.Kind, why)
		return
	}
	if doc.Kind == log.KindSetting && doc.Name == projections.SettingClusterTime {
		r.problem(d, "", "use rutter cluster time set", "setting the log's time is an act, which documents do not declare")
		return
	}
	for name, field := range map[string]string{"name": NameField(doc.Kind), "uuid": UUIDField(doc.Kind)} {
		switch given := name == "name" && doc.Name != "" || name == "uuid" && !doc.UUID.IsZero(); {
		case given && field == "":
			r.problem(d, name, "leave it out; it is found by what is under spec", "a %s has no %s", doc.Kind.Describe().Noun, name)
		case given && name == "name":
			d.set(field, name, doc.Name)
		case given:
			d.set(field, name, doc.UUID.String())
		}
	}
	r.readLabels(d)
	for _, option := range doc.Options {
		if !slices.Contains(doc.Kind.Describe().Options, option) || option != log.OptionAnyOwner {
			r.problem(d, "options", "leave it out", "%q is no option of documents of a %s", option, doc.Kind.Describe().Noun)
		}
	}
	for _, name := range sortedKeys(doc.Spec) {
		r.readField(d, name)
	}
}

func (r *resolver) readLabels(d *draft) {
	if d.doc.Labels == nil {
		return
	}
	if !slices.Contains(log.FieldNames(d.doc.Kind), labelsField) {
		r.problem(d, labelsField, "leave them out", "a %s has no labels", d.doc.Kind.Describe().Noun)
		return
	}
	texts := make([]any, 0, len(d.doc.Labels))
	for _, key := range sortedKeys(d.doc.Labels) {
		texts = append(texts, key+"="+d.doc.Labels[key])
	}
	d.set(labelsField, labelsField, texts)
}

// readField takes one field of spec.
func (r *resolver) readField(d *draft, name string) {
	kind := d.doc.Kind
	f, ok := fieldOf(kind, name)
	if !ok {
		r.unknownField(d, name)
		return
	}
	if other, twice := d.from[f.FieldDoc.Name]; twice {
		r.problem(d, name, "give one of them", "it says the same as %s", other)
		return
	}
	value, err := valueOf(f.FieldDoc, d.doc.Spec[name])
	if err != nil {
		r.problem(d, name, "send "+wanted(f.FieldDoc), "%v", err)
		return
	}
	if len(f.Values) > 0 && value != nil && !slices.Contains(f.Values, fmt.Sprint(value)) {
		r.problem(d, name, "send one of: "+strings.Join(f.Values, ", "), "%q is not known", fmt.Sprint(value))
		return
	}
	d.set(f.FieldDoc.Name, name, value)
	if of := belongsTo[name]; of != "" && f.FieldDoc.Name == belongsToUUID && d.doc.Kind != log.KindAggregation {
		if _, twice := d.from[belongsToType]; twice {
			r.problem(d, name, "leave out belongs_to_type", "it says the same as belongs_to_type")
			return
		}
		d.set(belongsToType, name, of)
	}
}

// unknownField notes a field that documents of a kind do not have.
func (r *resolver) unknownField(d *draft, name string) {
	kind := d.doc.Kind
	switch i := slices.IndexFunc(log.FieldDocs(kind), func(f log.FieldDoc) bool { return f.Name == name }); {
	case name == NameField(kind), name == UUIDField(kind), name == labelsField:
		word := map[string]string{NameField(kind): "name", UUIDField(kind): "uuid", labelsField: labelsField}[name]
		r.problem(d, name, "write it as "+word+" beside kind", "it does not stand under spec")
		return
	case i >= 0:
		r.problem(d, name, "leave it out", "documents do not have it: it is set by others (%s)", log.FieldDocs(kind)[i].By)
		return
	}
	var names []string
	for _, f := range Fields(kind) {
		names = append(names, f.Name)
	}
	remedy := "rutter explain " + kind.String() + " lists the fields"
	if near := Nearest(name, names); near != "" {
		remedy = fmt.Sprintf("did you mean %s? %s", near, remedy)
	}
	r.problem(d, name, remedy, "a %s has no such field", kind.Describe().Noun)
}

func (d *draft) set(json, name string, value any) { d.fields[json], d.from[json] = value, name }

// text is a field as text; "" if it is not there.
func (d *draft) text(json string) string {
	text, _ := d.fields[json].(string)
	return text
}

// texts is a field that is a list, as texts.
func (d *draft) texts(json string) (all []string) {
	list, _ := d.fields[json].([]any)
	for _, v := range list {
		if text, ok := v.(string); ok {
			all = append(all, text)
		}
	}
	return all
}

// objects makes the objects of the drafts, whose ids are known.
func (r *resolver) objects() (all []*Object) {
	seen := make(map[string]*draft)
	for _, d := range r.drafts {
		if d.bad {
			continue
		}
		if r.build(d); d.bad {
			continue
		}
		key := d.doc.Kind.String() + " " + d.object.Object.ID()
		if other := seen[key]; other != nil {
			r.problem(d, "", "declare it once", "another document declares it, %s", elsewhere(other))
			continue
		}
		seen[key] = d
		all = append(all, d.object)
	}
	return all
}

// elsewhere says where a draft is: its place, or if no file has it what it is.
func elsewhere(d *draft) string {
	if at := d.doc.Place.String(); at != "" {
		return "at " + at
	}
	return describe(d.doc.Kind, d.doc.Name, d.object.Object.ID())
}

// build makes the object of a draft.
func (r *resolver) build(d *draft) {
	raw, err := json.Marshal(d.fields)
	if err != nil {
		r.problem(d, "", "write plain values", "%v", err)
		return
	}
	o, set, err := log.ParseObject(d.doc.Kind, raw)
	var refusal *log.Refusal
	switch {
	case errors.As(err, &refusal):
		for _, e := range refusal.Errors {
			r.problem(d, d.from[e.Field], e.Remedy, "%s", e.Message)
		}
		return
	case err != nil:
		r.problem(d, "", "", "%v", err)
		return
	}
	d.object = &Object{Document: *d.doc, Object: o, Set: set}
	if rec, ok := r.state.Find(o); ok {
		d.object.Has = rec
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
