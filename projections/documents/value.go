package documents

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"rutter/log"
)

// maxDepth bounds how deep values are nested: what servers take of a VM's properties.
const maxDepth = 32

// valueOf turns a document's value of a field into one that its JSON form has.
func valueOf(f log.FieldDoc, v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	if f.JSON {
		return jsonText(v)
	}
	if of, list := f.Type.Element(); list {
		items, ok := v.([]any)
		if !ok {
			return nil, fmt.Errorf("it is no list")
		}
		all := make([]any, len(items))
		for i, item := range items {
			one, err := scalar(of, item)
			if err != nil {
				return nil, fmt.Errorf("element %d: %w", i+1, err)
			}
			all[i] = one
		}
		return all, nil
	}
	if f.Type == log.TypeRoutes {
		routes, ok := v.(map[string]any)
		if !ok {
			return nil, errors.New("it is no map of destination to gateway")
		}
		all := make(map[string]any, len(routes))
		for dst, via := range routes {
			text, err := scalar(log.TypeText, via)
			if err != nil {
				return nil, fmt.Errorf("route to %s: %w", log.Quote(dst), err)
			}
			all[dst] = text
		}
		return all, nil
	}
	return scalar(f.Type, v)
}

// scalar turns one value into JSON, by the form that its field has.
func scalar(of log.FieldType, v any) (any, error) {
	plain, isPlain := v.(Plain)
	text, isText := v.(string)
	switch {
	case !isPlain && !isText:
		return nil, errors.New("it is no single value")
	case of == log.TypeBoolean:
		truth, is := truthOf(plain)
		if !is {
			return nil, fmt.Errorf("\"%s\" is neither true nor false", log.Quote(string(plain)+text))
		}
		return truth, nil
	case of == log.TypeNumber || of == log.TypeLarge:
		if plain == "" || strings.Trim(string(plain), "0123456789") != "" {
			return nil, fmt.Errorf("\"%s\" is no whole number of 0 or more", log.Quote(string(plain)+text))
		}
		if len(plain) > 1 && plain[0] == '0' { // 12 to one reader of YAML, 10 to another
			return nil, fmt.Errorf("\"%s\" begins with 0, which some take for base eight", log.Quote(string(plain)))
		}
		return json.Number(plain), nil
	case isPlain:
		return string(plain), nil
	}
	return text, nil
}

// truthOf returns what a plain value says if it is a truth: YAML has each in three forms.
func truthOf(v Plain) (truth, is bool) {
	switch v {
	case "true", "True", "TRUE":
		return true, true
	case "false", "False", "FALSE":
		return false, true
	}
	return false, false
}

// wanted says in words what a field takes.
func wanted(f log.FieldDoc) string {
	switch {
	case f.JSON:
		return "plain values, lists and maps"
	case f.Type == log.TypeRoutes:
		return "a map of destination to gateway, as in {10.2.0.0/16: 10.1.0.1}"
	case f.Type == log.TypeAddress:
		return "an IP address"
	case f.Type == log.TypeBoolean:
		return "true or false"
	}
	return "a " + f.Type.String()
}

// jsonText is the canonical JSON text of a value: sorted names and no blanks.
func jsonText(v any) (string, error) {
	plain, err := toJSON(v, 0)
	if err != nil {
		return "", err
	}
	return marshal(plain)
}

func marshal(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// toJSON turns a document's value into one that encoding/json writes.
func toJSON(v any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("it is nested deeper than %d", maxDepth)
	}
	switch v := v.(type) {
	case Plain:
		if truth, is := truthOf(v); is {
			return truth, nil
		}
		if json.Valid([]byte(v)) {
			return json.Number(v), nil
		}
		return string(v), nil
	case []any:
		all := make([]any, len(v))
		for i, item := range v {
			one, err := toJSON(item, depth+1)
			if err != nil {
				return nil, err
			}
			all[i] = one
		}
		return all, nil
	case map[string]any:
		all := make(map[string]any, len(v))
		for name, item := range v {
			one, err := toJSON(item, depth+1)
			if err != nil {
				return nil, err
			}
			all[name] = one
		}
		return all, nil
	}
	return v, nil
}

// fromJSON is the inverse of jsonText: the document's value of a JSON text. ok is false of
// a text that is no JSON.
func fromJSON(text string) (v any, ok bool) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil || dec.More() {
		return nil, false
	}
	return plainOf(v), true
}

func plainOf(v any) any {
	switch v := v.(type) {
	case bool:
		return Plain(fmt.Sprint(v))
	case json.Number:
		return Plain(v)
	case []any:
		for i := range v {
			v[i] = plainOf(v[i])
		}
		return v
	case map[string]any:
		for name := range v {
			v[name] = plainOf(v[name])
		}
		return v
	}
	return v
}

// Nearest returns the name that is most like a text, or "" if none is near.
func Nearest(text string, names []string) (near string) {
	best := max(2, len(text)/3) + 1
	for _, name := range names {
		if n := distance(strings.ToLower(text), name, best); n < best {
			best, near = n, name
		}
	}
	return near
}

// distance is the number of letters to insert, delete or replace between two short texts;
// at least most if one is too long for more.
func distance(a, b string, most int) int {
	if len(a) > log.MaxQuoteBytes || len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		diagonal := last[0]
		last[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, last[j+1] = last[j+1], min(last[j+1]+1, last[j]+1, diagonal+cost)
		}
	}
	return last[len(b)]
}
