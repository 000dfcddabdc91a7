package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"rutter/projections/documents"
)

// node is a value of a document's text with its line.
type node struct {
	line int
	// value is nil, string, documents.Plain, []*node, or *object.
	value any
}

// object is a map whose names keep their order.
type object struct {
	names  []string
	values map[string]*node
}

func newObject() *object { return &object{values: make(map[string]*node)} }

// add adds a value by a name that the object does not have.
func (o *object) add(name string, n *node) error {
	if _, twice := o.values[name]; twice {
		return lineError{n.line, fmt.Sprintf("%q is written twice; write it once", name)}
	}
	o.names, o.values[name] = append(o.names, name), n
	return nil
}

// lineError is what is wrong with a line of a text.
type lineError struct {
	line int
	text string
}

func (e lineError) Error() string { return e.text }

// plain is a node's value as documents have it.
func (n *node) plain() any {
	switch v := n.value.(type) {
	case []*node:
		all := make([]any, len(v))
		for i, item := range v {
			all[i] = item.plain()
		}
		return all
	case *object:
		all := make(map[string]any, len(v.names))
		for name, item := range v.values {
			all[name] = item.plain()
		}
		return all
	}
	return n.value
}

// eachYAML calls fn with each document of a YAML text that is not empty.
func eachYAML(text []byte, fn func(*node) error) error {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc yaml.Node
		switch err := dec.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return yamlError(err)
		case doc.Kind != yaml.DocumentNode || len(doc.Content) != 1:
			continue
		}
		n, err := fromYAML(doc.Content[0], 0)
		if err != nil {
			return err
		}
		if n.value == nil {
			continue // between two lines of ---
		}
		if err := fn(n); err != nil {
			return err
		}
	}
}

// yamlError takes the line from an error of the YAML library, as in "yaml: line 3: ...".
func yamlError(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var line int
	if _, scan := fmt.Sscanf(text, "line %d:", &line); scan == nil {
		_, text, _ = strings.Cut(text, ": ")
	}
	return lineError{line, "it is no YAML: " + text}
}

// fromYAML turns a node of the YAML library into ours.
func fromYAML(y *yaml.Node, depth int) (*node, error) {
	n := &node{line: y.Line}
	switch {
	case depth > MaxDepth:
		return nil, lineError{y.Line, fmt.Sprintf("it is nested deeper than %d", MaxDepth)}
	case y.Kind == yaml.AliasNode || y.Anchor != "":
		return nil, lineError{y.Line, "YAML's anchors and aliases are not read; write the value out"}
	case y.Style&yaml.TaggedStyle != 0:
		return nil, lineError{y.Line, fmt.Sprintf("YAML's tag %s is not read; write the value without it", y.Tag)}
	}
	switch y.Kind {
	case yaml.MappingNode:
		o := newObject()
		for i := 0; i+1 < len(y.Content); i += 2 {
			key, value := y.Content[i], y.Content[i+1]
			if key.Kind != yaml.ScalarNode || key.Anchor != "" || key.Tag == "!!merge" {
				return nil, lineError{key.Line, "a name must be plain text"}
			}
			item, err := fromYAML(value, depth+1)
			if err != nil {
				return nil, err
			}
			item.line = key.Line
			if err := o.add(key.Value, item); err != nil {
				return nil, err
			}
		}
		n.value = o
	case yaml.SequenceNode:
		items := make([]*node, 0, len(y.Content))
		for _, value := range y.Content {
			item, err := fromYAML(value, depth+1)
			if err != nil {
				return nil, err
			}
			items = append(items, item)
		}
		n.value = items
	case yaml.ScalarNode:
		n.value = scalarOf(y)
	}
	return n, nil
}

// scalarOf is the value of a scalar. What is neither text nor null is Plain: its field
// says what it is, so that a name such as 007 or 2026-11-22 stays what was written.
func scalarOf(y *yaml.Node) any {
	switch y.Tag {
	case "!!null":
		return nil
	case "!!str":
		return y.Value
	}
	return documents.Plain(y.Value)
}

// eachJSON calls fn with each value of a text of JSON values, one after another; a list at
// the top is a list of documents.
func eachJSON(text []byte, fn func(*node) error) error {
	r := &jsonReader{text: text, dec: json.NewDecoder(bytes.NewReader(text)), line: 1}
	r.dec.UseNumber()
	for {
		n, err := r.value(0)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		list, is := n.value.([]*node)
		if !is {
			list = []*node{n}
		}
		for _, one := range list {
			if err := fn(one); err != nil {
				return err
			}
		}
	}
}

// jsonReader reads JSON values with their lines.
type jsonReader struct {
	text []byte
	dec  *json.Decoder
	line int // of the byte at
	at   int64
}

// token reads a token; io.EOF at the end of the text.
func (r *jsonReader) token() (json.Token, error) {
	token, err := r.dec.Token()
	to := min(r.dec.InputOffset(), int64(len(r.text)))
	r.line += bytes.Count(r.text[r.at:to], []byte{'\n'})
	r.at = to
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, lineError{r.line, "it is no JSON: " + err.Error()}
	}
	return token, err
}

// value reads one value; io.EOF if there is none.
func (r *jsonReader) value(depth int) (*node, error) {
	token, err := r.token()
	if err != nil {
		return nil, err
	}
	n := &node{line: r.line}
	switch token := token.(type) {
	case json.Delim:
		if depth > MaxDepth {
			return nil, lineError{r.line, fmt.Sprintf("it is nested deeper than %d", MaxDepth)}
		}
		if token == '{' {
			n.value, err = r.object(depth)
		} else {
			n.value, err = r.list(depth)
		}
	case bool:
		n.value = documents.Plain(fmt.Sprint(token))
	case json.Number:
		n.value = documents.Plain(token)
	case string:
		n.value = token
	}
	return n, unexpectedEnd(err, r.line)
}

// object reads what stands between braces.
func (r *jsonReader) object(depth int) (*object, error) {
	o := newObject()
	for r.dec.More() {
		name, err := r.token()
		if err != nil {
			return nil, err
		}
		text, _ := name.(string)
		line := r.line
		item, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		item.line = line
		if err := o.add(text, item); err != nil {
			return nil, err
		}
	}
	_, err := r.token()
	return o, err
}

// list reads what stands between brackets.
func (r *jsonReader) list(depth int) ([]*node, error) {
	items := []*node{}
	for r.dec.More() {
		item, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	_, err := r.token()
	return items, err
}

// unexpectedEnd turns the end of a text within a value into an error with its line.
func unexpectedEnd(err error, line int) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return lineError{line, "it is no JSON: the text ends within a value"}
	}
	return err
}
