package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"

	"go.yaml.in/yaml/v3"
)

const (
	maxFile  = 1 << 20 // bytes of one file of rows
	maxDepth = 32      // levels of lists and mappings in a file
)

// jsonNumber is a number as JSON writes it. YAML's other forms (octal, 1_000, .inf) are
// refused, because a reader may take them for something else.
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// document reads a file with exactly one document.
func document(b []byte) (*yaml.Node, error) {
	if len(b) > maxFile {
		return nil, fmt.Errorf("the file has %d bytes, the limit is %d: split it", len(b), maxFile)
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	var doc yaml.Node
	if err := d.Decode(&doc); err != nil {
		return nil, err
	}
	if err := d.Decode(new(yaml.Node)); err != io.EOF {
		return nil, fmt.Errorf("the file has more than one document: take the line --- out")
	}
	if len(doc.Content) != 1 {
		return nil, fmt.Errorf("the file has no rows")
	}
	return doc.Content[0], nil
}

// plain turns a node into what encoding/json makes of the same JSON with UseNumber: no
// aliases, tags, dates or numbers in a form that JSON lacks.
func plain(n *yaml.Node, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("line %d: more than %d levels", n.Line, maxDepth)
	}
	if n.Anchor != "" || n.Kind == yaml.AliasNode {
		return nil, fmt.Errorf("line %d: anchors and aliases are not used here: write the value out", n.Line)
	}
	switch n.Kind {
	case yaml.MappingNode:
		return plainObject(n, depth)
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, c := range n.Content {
			v, err := plain(c, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case yaml.ScalarNode:
		return plainScalar(n)
	default:
		return nil, fmt.Errorf("line %d: want a value", n.Line)
	}
}

func plainObject(n *yaml.Node, depth int) (any, error) {
	m := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" || key.Anchor != "" {
			return nil, fmt.Errorf("line %d: want a name before the colon", key.Line)
		}
		if _, twice := m[key.Value]; twice {
			return nil, fmt.Errorf("line %d: %q stands twice", key.Line, key.Value)
		}
		v, err := plain(n.Content[i+1], depth+1)
		if err != nil {
			return nil, err
		}
		m[key.Value] = v
	}
	return m, nil
}

func plainScalar(n *yaml.Node) (any, error) {
	switch tag := n.ShortTag(); tag {
	case "!!str", "!!timestamp":
		return n.Value, nil
	case "!!null":
		return nil, nil
	case "!!bool":
		var b bool
		err := n.Decode(&b)
		return b, err
	case "!!int", "!!float":
		if !jsonNumber.MatchString(n.Value) {
			return nil, fmt.Errorf("line %d: %q is no number of JSON: put it in quotes, or write it in decimal", n.Line, n.Value)
		}
		return json.Number(n.Value), nil
	default:
		return nil, fmt.Errorf("line %d: the tag %s is not used here", n.Line, tag)
	}
}

// into fills a struct from a node; unknown keys are refused.
func into(n *yaml.Node, to any) error {
	v, err := plain(n, 0)
	if err != nil {
		return err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	d.UseNumber()
	if err := d.Decode(to); err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	return nil
}
