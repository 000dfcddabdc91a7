package line

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"

	"rutter/log"
)

// palette has the control sequence of each part of a line, and off, which ends it. The
// zero palette has no colours.
type palette struct{ time, seq, kind, path, was, is, actor, off string }

// colours are those of every terminal (ECMA-48 section 8.3.117).
var colours = palette{
	time: "\x1b[2m", seq: "\x1b[1m", kind: "\x1b[36m", path: "\x1b[33m", was: "\x1b[31m", is: "\x1b[32m", actor: "\x1b[2m", off: "\x1b[0m",
}

// put appends text in a colour.
func (p *Printer) put(b []byte, colour, text string) []byte {
	b = append(append(b, colour...), text...)
	if colour != "" {
		b = append(b, p.p.off...)
	}
	return b
}

// head appends the begin of each line of an entry.
func (p *Printer) head(b []byte, l log.Line) []byte {
	e := l.Event
	b = append(p.put(b, p.p.time, e.Time.String()), ' ')
	b = append(p.put(b, p.p.seq, "#"+l.Seq.String()), ' ')
	b = append(p.put(b, p.p.kind, e.Kind.String()), ' ')
	return append(append(b, safe(e.ID)...), ' ')
}

// tail appends the end of each line of an entry.
func (p *Printer) tail(b []byte, l log.Line) []byte {
	b = p.put(b, p.p.actor, "  by "+safe(l.Event.Actor))
	return append(p.reverts(b, l.Event.Reverts), '\n')
}

// reverts appends which entries an entry takes back, if any.
func (p *Printer) reverts(b []byte, r log.Reverts) []byte {
	if len(r) == 0 {
		return b
	}
	return p.put(b, p.p.actor, "  reverts "+r.String())
}

// lines appends an entry in vminfod's form (spec/vminfod.md section 5.4): one line for
// each field that changed.
func (p *Printer) lines(b []byte, l log.Line) []byte {
	e := l.Event
	if e.Action != log.Update || len(e.Changed) == 0 {
		b = p.put(p.head(b, l), p.actionColour(e.Action), e.Action.String())
		if e.Action != log.Create || !p.o.Values {
			return p.tail(p.made(b, e, " :: "), l)
		}
		b = p.tail(b, l)
		for _, name := range log.FieldNames(e.Kind) {
			if value, _ := log.Field(e.Object, name); value != nil && value != false && value != uint64(0) {
				b = append(p.put(p.head(b, l), p.p.path, name), " set :: "...)
				b = p.tail(p.put(b, p.p.is, p.value(name, value)), l)
			}
		}
		return b
	}
	for _, change := range e.Changed {
		b = append(p.put(p.head(b, l), p.p.path, safe(change.Path)), " changed :: "...)
		b = p.tail(p.change(b, e, change), l)
	}
	return b
}

// change appends the old and the new value of a field.
func (p *Printer) change(b []byte, e *log.Event, change log.FieldChange) []byte {
	now, _ := log.Field(e.Object, change.Path)
	b = p.put(b, p.p.was, p.value(change.Path, change.Old))
	return p.put(append(b, " -> "...), p.p.is, p.value(change.Path, now))
}

const (
	// maxMade bounds the fields that the line of a created object of a kind without a list
	// has.
	maxMade = 6
	// maxMadeText bounds the bytes of a value in such a line.
	maxMadeText = 120
)

// made appends the fields of a created object that lists of its kind have, except its id.
// before stands before the first one.
func (p *Printer) made(b []byte, e *log.Event, before string) []byte {
	if e.Action != log.Create {
		return b
	}
	described := e.Kind.Describe()
	var names []string
	for _, c := range described.Command.Columns {
		names = append(names, c.Field)
	}
	if names == nil {
		names = log.FieldNames(e.Kind)
	}
	n := 0
	for _, name := range names {
		value, _ := log.Field(e.Object, name)
		if name == described.IDField || value == nil || value == false || value == uint64(0) || value == "" {
			continue
		}
		if n++; n > maxMade && described.Command.Columns == nil {
			break
		}
		text := p.value(name, value)
		if len(text) > maxMadeText {
			text = "…"
		}
		b = append(p.put(append(b, before...), p.p.path, name), ' ')
		b = p.put(b, p.p.is, text)
		before = ", "
	}
	return b
}

// value is Value with the names of what it names.
func (p *Printer) value(field string, v log.Value) string {
	text := Value(field, v)
	if p.o.Names == nil {
		return text
	}
	var uuids []string
	switch v := v.(type) {
	case string:
		uuids = []string{v}
	case []string:
		uuids = v
	}
	var names []string
	for _, uuid := range uuids {
		if name := p.o.Names(field, uuid); name != "" {
			names = append(names, Name(name))
		}
	}
	if names == nil {
		return text
	}
	return text + " (" + strings.Join(names, ", ") + ")"
}

// Name returns a name that others chose as it is if it has only letters, digits and the
// marks of host names, else quoted: it cannot be taken for what stands around it.
func Name(text string) string {
	odd := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '.' && r != '-' && r != '_'
	}
	if strings.IndexFunc(text, odd) < 0 && strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	return strconv.Quote(text)
}

func (p *Printer) actionColour(a log.Action) string {
	switch a {
	case log.Create:
		return p.p.is
	case log.Delete:
		return p.p.was
	}
	return p.p.path
}

// Widths of the table's columns, in characters: the longest usual text. A longer text
// moves the rest of its row only.
const (
	timeWidth   = 24
	seqWidth    = 10 // ten thousand million entries
	kindWidth   = 12
	actionWidth = 6
	idWidth     = 36
	actorWidth  = 24
)

func (p *Printer) header(b []byte) []byte {
	return fmt.Appendf(b, "%-*s  %*s  %-*s  %-*s  %-*s  %-*s  %s\n", timeWidth, "TIME", seqWidth, "SEQ", kindWidth, "KIND",
		actionWidth, "ACTION", idWidth, "ID", actorWidth, "ACTOR", "CHANGED")
}

// row appends an entry as a row of the table.
func (p *Printer) row(b []byte, l log.Line) []byte {
	e := l.Event
	b = p.put(b, p.p.time, pad(e.Time.String(), timeWidth))
	b = p.put(b, p.p.seq, fmt.Sprintf("  %*s", seqWidth, l.Seq))
	b = p.put(b, p.p.kind, "  "+pad(e.Kind.String(), kindWidth))
	b = p.put(b, p.actionColour(e.Action), "  "+pad(e.Action.String(), actionWidth))
	b = append(append(b, "  "...), pad(safe(e.ID), idWidth)...)
	b = p.put(b, p.p.actor, "  "+pad(safe(e.Actor), actorWidth))
	for i, change := range e.Changed {
		if i == 0 {
			b = append(b, "  "...)
		} else {
			b = append(b, "; "...)
		}
		b = p.change(append(p.put(b, p.p.path, safe(change.Path)), ' '), e, change)
	}
	switch made := p.made(nil, e, "  "); {
	case len(made) > 0:
		b = append(b, made...)
	case len(e.Changed) == 0:
		b = append(b, "  -"...)
	}
	return append(p.reverts(b, e.Reverts), '\n')
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-len([]rune(text))))
}

// timeFields are the fields of objects that are times, in nanoseconds.
var timeFields = log.TimeFields()

// Value is the text of a field's value: JSON, with times as text, and without control
// characters for a terminal.
func Value(field string, v log.Value) string {
	if n, ok := v.(uint64); ok && n != 0 && slices.Contains(timeFields, field) {
		v = log.Time(n).String()
	}
	b, err := plainJSON(v)
	if err != nil {
		return safe(fmt.Sprint(v))
	}
	return escaped(string(b))
}

// escaped replaces invisible characters of a JSON text by \u escapes.
func escaped(text string) string {
	if strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch high, low := utf16.EncodeRune(r); {
		case !hidden(r):
			b.WriteRune(r)
		case high != unicode.ReplacementChar:
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func hidden(r rune) bool { return !unicode.IsPrint(r) }

// safe returns text from users, quoted if it has invisible characters.
func safe(text string) string {
	if strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	return strconv.Quote(text)
}
