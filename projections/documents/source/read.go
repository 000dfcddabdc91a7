package source

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections/documents"
)

// topNames are the names of a document, in the order in which they are written.
var topNames = []string{"kind", "name", "uuid", "labels", "options", "spec"}

// Read reads the documents of a text, whose name is for messages. A text that begins with
// a brace or a bracket is JSON, any other one YAML. The error is documents.Problems.
func Read(name string, text []byte) ([]documents.Document, error) {
	if len(text) > MaxFileBytes {
		return nil, documents.Problems{{Place: documents.Place{File: name}, Message: fmt.Sprintf("it has %d bytes, over %d", len(text), MaxFileBytes), Remedy: "split it into several files"}}
	}
	r := reader{file: name}
	each := eachYAML
	if begin := bytes.TrimLeft(text, " \t\r\n\ufeff"); len(begin) > 0 && (begin[0] == '{' || begin[0] == '[') {
		each, text = eachJSON, bytes.TrimPrefix(text, []byte("\ufeff"))
	}
	if err := each(text, r.document); err != nil {
		line := lineError{text: err.Error()}
		errors.As(err, &line)
		r.problem(line.line, "", "", "", "%s", line.text)
	}
	if len(r.problems) > 0 {
		return nil, r.problems
	}
	return r.docs, nil
}

// reader is the work of Read.
type reader struct {
	file     string
	docs     []documents.Document
	problems documents.Problems
}

func (r *reader) problem(line int, subject, field, remedy, format string, args ...any) {
	r.problems = append(r.problems, documents.Problem{
		Place: documents.Place{File: r.file, Line: line}, Subject: subject, Field: field, Message: fmt.Sprintf(format, args...), Remedy: remedy,
	})
}

// document reads one document. What is wrong with it is noted, so that all is said at
// once; an error ends the reading.
func (r *reader) document(n *node) error {
	if len(r.docs) == MaxDocuments {
		return lineError{n.line, fmt.Sprintf("there are more than %d documents; apply them in several steps", MaxDocuments)}
	}
	top, ok := n.value.(*object)
	if !ok {
		r.problem(n.line, "", "", "begin with kind, as in kind: network", "it is no document")
		return nil
	}
	doc := documents.Document{Place: documents.Place{File: r.file, Line: n.line}, Lines: make(map[string]int)}
	subject := "document"
	if kind, _ := top.text("kind"); kind != "" {
		subject = kind
		if name, _ := top.text("name"); name != "" {
			subject += " " + log.Quote(name)
		}
	}
	for _, name := range top.names {
		item := top.values[name]
		doc.Lines[name] = item.line
		if !slices.Contains(topNames, name) {
			r.unknown(item.line, subject, name, top)
			continue
		}
		if remedy, err := take(&doc, name, top, item); err != nil {
			r.problem(item.line, subject, name, remedy, "%v", err)
		}
	}
	if top.values["kind"] == nil {
		r.problem(n.line, subject, "kind", "write one of "+kindNames(), "it is missing")
	}
	r.docs = append(r.docs, doc)
	return nil
}

// unknown notes a name that no document has.
func (r *reader) unknown(line int, subject, name string, top *object) {
	remedy := "a document has " + strings.Join(topNames, ", ")
	if kind, err := kindOf(top); err == nil {
		for _, f := range documents.Fields(kind) {
			if f.Name == name {
				remedy = "write it under spec"
			}
		}
	}
	if near := documents.Nearest(name, topNames); near != "" && !strings.HasSuffix(remedy, "under spec") {
		remedy = fmt.Sprintf("did you mean %s? %s", near, remedy)
	}
	r.problem(line, subject, name, remedy, "no document has it")
}

// text returns a value that is one text or number.
func (o *object) text(name string) (string, bool) {
	item := o.values[name]
	if item == nil {
		return "", false
	}
	switch v := item.value.(type) {
	case string:
		return v, true
	case documents.Plain:
		return string(v), true
	}
	return "", false
}

func kindOf(top *object) (log.Kind, error) {
	text, ok := top.text("kind")
	if !ok {
		return 0, errors.New("it is no text")
	}
	return log.ParseKind(text)
}

func kindNames() string {
	var names []string
	for _, kind := range documents.Kinds() {
		names = append(names, kind.String())
	}
	return strings.Join(names, ", ")
}

// take takes one of a document's names; the remedy is for its error.
func take(doc *documents.Document, name string, top *object, item *node) (remedy string, err error) {
	switch name {
	case "kind":
		if doc.Kind, err = kindOf(top); err != nil {
			return "write one of " + kindNames(), errors.New("it is no kind of object")
		}
	case "name":
		var ok bool
		if doc.Name, ok = top.text(name); !ok && item.value != nil {
			return "write a text", errors.New("it is no text")
		}
	case "uuid":
		text, _ := top.text(name)
		if item.value == nil {
			return "", nil
		}
		if doc.UUID, err = log.ParseUUID(text); err != nil {
			return "write 36 characters, as in 564d69b1-a178-4fbe-b36f-3f2b7fd7ed31", errors.New("it is no UUID")
		}
	case "labels":
		doc.Labels, err = labelsOf(item)
		return "write a map of texts, as in {app: web}", err
	case "options":
		list, ok := item.value.([]*node)
		if !ok && item.value != nil {
			return "write a list, as in [any_owner]", errors.New("it is no list")
		}
		for _, one := range list {
			text, ok := one.value.(string)
			if !ok {
				return "write a list, as in [any_owner]", errors.New("an element is no text")
			}
			doc.Options = append(doc.Options, log.Option(text))
		}
		slices.Sort(doc.Options)
	case "spec":
		return specOf(doc, item)
	}
	return "", nil
}

func specOf(doc *documents.Document, item *node) (remedy string, err error) {
	doc.Spec = make(map[string]any)
	if item.value == nil {
		return "", nil
	}
	spec, ok := item.value.(*object)
	if !ok {
		return "write the fields under it, as in spec: {mtu: 1500}", errors.New("it is no map")
	}
	for _, field := range spec.names {
		doc.Spec[field] = spec.values[field].plain()
		doc.Lines[field] = spec.values[field].line
	}
	return "", nil
}

func labelsOf(item *node) (map[string]string, error) {
	if item.value == nil {
		return map[string]string{}, nil
	}
	top, ok := item.value.(*object)
	if !ok {
		return nil, errors.New("it is no map")
	}
	labels := make(map[string]string, len(top.names))
	for _, key := range top.names {
		text, ok := top.text(key)
		if !ok && top.values[key].value != nil {
			return nil, fmt.Errorf("label %s is no text", log.Quote(key))
		}
		labels[key] = text
	}
	return labels, nil
}
