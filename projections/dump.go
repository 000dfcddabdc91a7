package projections

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rutter/log"
)

// Dump returns the whole state as text, one line for each object, sorted by
// kind and id, with every field that is set: for tests and for people. Two
// equal states give the same bytes.
func (s *State) Dump() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "time %d\n", s.time)
	encoder := log.NewEncoder()
	for _, t := range s.tables {
		if t == nil {
			continue
		}
		for r := range t.order.all() {
			dumpRecord(&b, r.record(), encoder)
		}
	}
	return b.Bytes()
}

func dumpRecord(b *bytes.Buffer, r Record, encoder *log.Encoder) {
	o := r.Object
	fmt.Fprintf(b, "%s %s rev=%d seq=%d", o.Kind(), dumpText(o.ID()), r.Revision, r.Seq)
	if empty := log.NewObject(o.Kind()); empty != nil {
		for _, field := range log.Diff(empty, o) {
			value, _ := log.Field(o, field.Path)
			fmt.Fprintf(b, " %s=%s", field.Path, dumpValue(value))
		}
	} else if raw, err := encoder.Object(o); err == nil {
		fmt.Fprintf(b, " bytes=%s", hex.EncodeToString(raw))
	}
	b.WriteByte('\n')
}

// dumpValue prints a plain value; the keys of a map in order.
func dumpValue(v log.Value) string {
	switch v := v.(type) {
	case string:
		if v == "" || strings.ContainsAny(v, " =\"\n[]{}") {
			return strconv.Quote(v)
		}
		return dumpText(v)
	case []string:
		texts := make([]string, len(v))
		for i, text := range v {
			texts[i] = dumpText(text)
		}
		return "[" + strings.Join(texts, " ") + "]"
	case map[string]string:
		pairs := make([]string, 0, len(v))
		for key, value := range v {
			pairs = append(pairs, dumpText(key)+":"+dumpText(value))
		}
		slices.Sort(pairs)
		return "{" + strings.Join(pairs, " ") + "}"
	default:
		return fmt.Sprint(v)
	}
}

// dumpText quotes a text that would end the line, or that a terminal does not show.
func dumpText(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}
