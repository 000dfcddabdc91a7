package line

import (
	"bytes"
	"encoding/json"
	"fmt"

	"rutter/log"
)

// Format is how entries are printed.
type Format string

// The formats.
const (
	// Lines is for people: one line for each field that changed.
	Lines Format = "lines"
	// Table is for people too: below a header one row for each entry, in columns of
	// fixed widths.
	Table Format = "table"
	// JSON is one array, an entry on each line.
	JSON Format = "json"
	// NDJSON is one JSON object on each line.
	NDJSON Format = "ndjson"
	// YAML is one sequence of mappings.
	YAML Format = "yaml"
	// CSV is RFC 4180: a header, and one record for each field that changed.
	CSV Format = "csv"
)

// Formats lists the names of the formats, the default first.
func Formats() []string {
	return []string{string(Lines), string(Table), string(JSON), string(NDJSON), string(YAML), string(CSV)}
}

// Options say how a Printer prints.
type Options struct {
	Format Format
	// Colour marks parts of Lines and Table for a terminal (ECMA-48).
	Colour bool
	// Values makes Lines show what a created object held, a line for each field. Else the
	// line of a created object has the fields that lists of its kind have.
	Values bool
	// Names returns the name of what a field's UUID names, or "". Lines, Table and blames
	// show it behind the UUID. Nil: no names.
	Names func(field, uuid string) string
}

// A Printer turns entries into bytes. The bytes that Append and End add always end with
// a whole line, so a caller may stop after each call.
type Printer struct {
	o       Options
	p       palette
	printed uint64
}

// NewPrinter returns a printer. Without a format it prints Lines.
func NewPrinter(o Options) *Printer {
	if o.Format == "" {
		o.Format = Lines
	}
	p := &Printer{o: o}
	if o.Colour {
		p.p = colours
	}
	return p
}

// Append adds an entry to b. An error means that the entry has no JSON form.
func (p *Printer) Append(b []byte, l log.Line) ([]byte, error) {
	first := p.printed == 0
	p.printed++
	switch p.o.Format {
	case Lines:
		return p.lines(b, l), nil
	case Table:
		if first {
			b = p.header(b)
		}
		return p.row(b, l), nil
	case CSV:
		if first {
			b = AppendCSV(b, csvHeader...)
		}
		return p.records(b, l), nil
	}
	if p.o.Format == NDJSON {
		var err error
		if b, err = l.AppendJSON(b); err != nil {
			return b, fmt.Errorf("seq %d: %w", l.Seq, err)
		}
		return append(b, '\n'), nil
	}
	text, err := plainJSON(l)
	if err != nil {
		return nil, fmt.Errorf("seq %d: %w", l.Seq, err)
	}
	switch p.o.Format {
	case JSON:
		if first {
			b = append(b, '[')
		} else {
			b = append(b, ',')
		}
	case YAML:
		return appendYAML(b, text)
	}
	return append(append(b, text...), '\n'), nil
}

// End adds the end of the output: for JSON the end of the array.
func (p *Printer) End(b []byte) []byte {
	switch {
	case p.o.Format == JSON && p.printed == 0, p.o.Format == YAML && p.printed == 0:
		return append(b, "[]\n"...)
	case p.o.Format == JSON:
		return append(b, "]\n"...)
	case p.o.Format == Table && p.printed == 0:
		return p.header(b)
	case p.o.Format == CSV && p.printed == 0:
		return AppendCSV(b, csvHeader...)
	}
	return b
}

// plainJSON encodes v as JSON without escaping <, > and &.
func plainJSON(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}
