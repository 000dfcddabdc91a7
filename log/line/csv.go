package line

import (
	"strings"

	"rutter/log"
)

// csvHeader has the columns of CSV. An entry has a record for each field that changed; one
// that changed none has one record without a field.
var csvHeader = []string{"time", "seq", "kind", "action", "id", "revision", "actor", "change_id", "field", "old", "new"}

// records appends an entry as records of CSV.
func (p *Printer) records(b []byte, l log.Line) []byte {
	e := l.Event
	record := func(field, old, now string) {
		b = AppendCSV(b, e.Time.String(), l.Seq.String(), e.Kind.String(), e.Action.String(), safe(e.ID), e.Revision.String(), safe(e.Actor), e.ChangeID.String(), safe(field), old, now)
	}
	for _, change := range e.Changed {
		now, _ := log.Field(e.Object, change.Path)
		record(change.Path, csvValue(change.Path, change.Old), csvValue(change.Path, now))
	}
	if len(e.Changed) > 0 {
		return b
	}
	made := false
	if e.Action == log.Create {
		for _, name := range log.FieldNames(e.Kind) {
			if value, _ := log.Field(e.Object, name); value != nil && value != false && value != uint64(0) {
				record(name, "", csvValue(name, value))
				made = true
			}
		}
	}
	if !made {
		record("", "", "")
	}
	return b
}

// csvValue is a field's value: a text without quotes, no value as nothing, others as Value.
func csvValue(field string, v log.Value) string {
	text, is := v.(string)
	switch {
	case v == nil:
		return ""
	case is:
		return safe(text)
	}
	return strings.Trim(Value(field, v), `"`)
}

// AppendCSV appends one record of RFC 4180. The cells have no control characters, because
// the caller escapes them. A cell that a spreadsheet would take for a formula, as a name
// like =HYPERLINK(…) is, gets an apostrophe before it, which spreadsheets do not show; a
// number stays.
func AppendCSV(b []byte, cells ...string) []byte {
	for i, cell := range cells {
		if i > 0 {
			b = append(b, ',')
		}
		if formula(cell) {
			cell = "'" + cell
		}
		if !strings.ContainsAny(cell, "\",\r\n") && strings.TrimSpace(cell) == cell {
			b = append(b, cell...)
			continue
		}
		b = append(append(append(b, '"'), strings.ReplaceAll(cell, `"`, `""`)...), '"')
	}
	return append(b, "\r\n"...)
}

// formula reports whether a spreadsheet may take a cell for a formula. Spaces before it do
// not help, nor do the wide forms of the marks.
func formula(cell string) bool {
	cell = strings.TrimSpace(cell)
	if cell == "" || !strings.ContainsRune("=+-@＝＋－＠|%", []rune(cell)[0]) {
		return false
	}
	number := strings.TrimLeft(cell, "+-")
	return len(cell)-len(number) > 1 || number == "" || strings.Trim(number, "0123456789.") != ""
}
