package source

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"rutter/log"
	"rutter/projections/documents"
)

// AppendYAML appends a document in its one form: the names in their order, the fields in
// that of documents.Fields, and the line --- before it.
func AppendYAML(b []byte, doc *documents.Document) []byte {
	w := yamlWriter{bytes.NewBuffer(b)}
	w.WriteString("---\n")
	w.item(0, "kind", doc.Kind.String())
	if doc.Name != "" {
		w.item(0, "name", doc.Name)
	}
	if !doc.UUID.IsZero() {
		w.item(0, "uuid", doc.UUID.String())
	}
	if doc.Labels != nil {
		labels := make(map[string]any, len(doc.Labels))
		for key, value := range doc.Labels {
			labels[key] = value
		}
		w.item(0, "labels", labels)
	}
	if len(doc.Options) > 0 {
		w.item(0, "options", optionList(doc.Options))
	}
	if len(doc.Spec) > 0 {
		w.WriteString("spec:\n")
		for _, name := range specNames(doc) {
			w.item(2, name, doc.Spec[name])
		}
	}
	return w.Bytes()
}

func optionList(options []log.Option) []any {
	list := make([]any, len(options))
	for i, option := range options {
		list[i] = string(option)
	}
	return list
}

// specNames are the names of a document's fields, in the order of documents.Fields; others
// come after them, sorted.
func specNames(doc *documents.Document) (names []string) {
	for _, f := range documents.Fields(doc.Kind) {
		if _, has := doc.Spec[f.Name]; has {
			names = append(names, f.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Spec)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

type yamlWriter struct{ *bytes.Buffer }

// item writes a name with its value, indent blanks from the left.
func (w yamlWriter) item(indent int, name string, value any) {
	w.WriteString(strings.Repeat(" ", indent) + yamlText(name) + ":")
	w.value(indent, value)
}

// value writes what follows a colon or a dash, with the end of the line.
func (w yamlWriter) value(indent int, value any) {
	switch v := value.(type) {
	case nil:
		w.WriteString(" null\n")
	case string:
		w.WriteString(" " + yamlText(v) + "\n")
	case documents.Plain:
		w.WriteString(" " + string(v) + "\n")
	case []any:
		if len(v) == 0 {
			w.WriteString(" []\n")
			return
		}
		w.WriteString("\n")
		for _, item := range v {
			w.WriteString(strings.Repeat(" ", indent+2) + "-")
			w.value(indent+2, item)
		}
	case map[string]any:
		if len(v) == 0 {
			w.WriteString(" {}\n")
			return
		}
		w.WriteString("\n")
		for _, name := range slices.Sorted(maps.Keys(v)) {
			w.item(indent+2, name, v[name])
		}
	default:
		panic(fmt.Sprintf("source: a document has a value of type %T", value))
	}
}

// reserved are texts that some reader of YAML, of any of its versions, takes for something
// else than text.
var reserved = []string{"", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n", "<<", "="}

// yamlText is a text as YAML has it: as it is where every reader takes it for text, else
// in quotes.
func yamlText(s string) string {
	bare := !slices.Contains(reserved, strings.ToLower(s)) && !strings.HasSuffix(s, ":")
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' || r == '/'
		if i == 0 && !letter && !isAddressLike(s) || !letter && !strings.ContainsRune("0123456789.-:", r) {
			bare = false
		}
	}
	if bare {
		return s
	}
	return quoted(s)
}

// isAddressLike reports whether a text that begins with a digit is a UUID, a MAC with a
// letter, or an address or subnet of IPv4: no reader takes it for a number or a time.
func isAddressLike(s string) bool {
	if _, err := log.ParseUUID(s); err == nil {
		return true
	}
	if _, err := log.ParseMAC(s); err == nil {
		return strings.ContainsAny(s, "abcdf") // with e alone it could be a number
	}
	return strings.Count(s, ".") == 3 && strings.Trim(s, "0123456789./") == ""
}

// quoted is a text in double quotes, with the escapes of YAML.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString("\\" + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// AppendJSON appends a document as one line of JSON.
func AppendJSON(b []byte, doc *documents.Document) ([]byte, error) {
	out := bytes.NewBuffer(b)
	begin := byte('{')
	add := func(name string, value any) error {
		text, err := jsonValue(value)
		if err == nil {
			out.WriteByte(begin)
			out.WriteString(strconv.Quote(name) + ":" + text)
			begin = ','
		}
		return err
	}
	err := add("kind", doc.Kind.String())
	if doc.Name != "" {
		err = cmp.Or(err, add("name", doc.Name))
	}
	if !doc.UUID.IsZero() {
		err = cmp.Or(err, add("uuid", doc.UUID.String()))
	}
	if doc.Labels != nil {
		err = cmp.Or(err, add("labels", doc.Labels))
	}
	if len(doc.Options) > 0 {
		err = cmp.Or(err, add("options", doc.Options))
	}
	if len(doc.Spec) > 0 {
		var spec strings.Builder
		for i, name := range specNames(doc) {
			text, wrong := jsonValue(doc.Spec[name])
			err = cmp.Or(err, wrong)
			key, _ := jsonValue(name) // a text has one
			spec.WriteString([]string{"", ","}[min(i, 1)] + key + ":" + text)
		}
		err = cmp.Or(err, add("spec", json.RawMessage("{"+spec.String()+"}")))
	}
	out.WriteString("}\n")
	return out.Bytes(), err
}

// jsonValue is a value in JSON.
func jsonValue(value any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(bare(value))
	return strings.TrimSuffix(b.String(), "\n"), err
}

// bare is a value with what is Plain as the number or the truth that it is.
func bare(value any) any {
	switch v := value.(type) {
	case documents.Plain:
		if json.Valid([]byte(v)) {
			return json.RawMessage(v)
		}
		return string(v)
	case []any:
		all := make([]any, len(v))
		for i, item := range v {
			all[i] = bare(item)
		}
		return all
	case map[string]any:
		all := make(map[string]any, len(v))
		for name, item := range v {
			all[name] = bare(item)
		}
		return all
	}
	return value
}
