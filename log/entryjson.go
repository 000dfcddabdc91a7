package log

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// This file has the JSON form of events, as GET /log prints them, one line for
// each. It is for people and programs, not for storage: times of an object have
// milliseconds there, old values of times too if they have no more digits. Fields of newer
// programs are left out, by who writes it and by who reads it: a reader goes on when servers
// are upgraded. Only Entry.Bytes are exact, and hashed.

// Line is an entry in its JSON form: what a program that reads GET /log gets. It
// cannot be turned back into an Entry, whose bytes are never made again.
type Line struct {
	Seq   Seq
	Chain ChainPrefix // of the chain hash at Seq
	Event *Event
}

// eventJSON is the JSON form of an event, in the order in which it is printed.
type eventJSON struct {
	Time     string          `json:"time"` // with nanoseconds
	Kind     Kind            `json:"kind"`
	Action   Action          `json:"action"`
	ID       string          `json:"id"`
	Revision Revision        `json:"revision"`
	Actor    string          `json:"actor"`
	ChangeID UUID            `json:"change_id"`
	More     uint32          `json:"more"`
	Scopes   []Scope         `json:"scopes"`
	Object   json.RawMessage `json:"object"`
	Changed  []FieldChange   `json:"changed,omitempty"`
	Reverts  Reverts         `json:"reverts,omitempty"`
}

// lineJSON is the JSON form of an entry: the event's with its place.
type lineJSON struct {
	Seq Seq `json:"seq"`
	eventJSON
	Chain string `json:"chain"`
}

// nanoLayout is RFC 3339 with all nine digits, so that lines align.
const nanoLayout = "2006-01-02T15:04:05.000000000Z"

func (e *Event) form() (eventJSON, error) {
	object, err := AppendObjectJSON(nil, e.Object)
	if err != nil {
		return eventJSON{}, fmt.Errorf("event of %s %s: %w", e.Kind, e.ID, err)
	}
	f := eventJSON{
		Kind: e.Kind, Action: e.Action, ID: e.ID, Revision: e.Revision, Actor: e.Actor, ChangeID: e.ChangeID,
		More: e.More, Scopes: e.Scopes, Object: object, Changed: shownChanges(e.Kind, e.Changed),
		Reverts: e.Reverts,
	}
	if e.Time != 0 {
		f.Time = e.Time.Std().Format(nanoLayout)
	}
	if f.Scopes == nil {
		f.Scopes = []Scope{}
	}
	return f, nil
}

func (e *Event) setForm(f *eventJSON) error {
	at, err := ParseTime(f.Time)
	if err != nil {
		return err
	}
	*e = Event{
		Kind: f.Kind, Action: f.Action, ID: f.ID, Revision: f.Revision, Time: at, Actor: f.Actor, ChangeID: f.ChangeID,
		More: f.More, Scopes: f.Scopes, Reverts: f.Reverts,
	}
	if len(e.Scopes) == 0 {
		e.Scopes = nil
	}
	if NewObject(f.Kind) == nil {
		e.Object = &Unknown{OfKind: f.Kind, Key: f.ID}
	} else if e.Object, _, err = parseObject(f.Kind, f.Object, true); err != nil {
		return fmt.Errorf("event of %s %s: %w", f.Kind, f.ID, err)
	}
	for _, c := range f.Changed {
		old, err := jsonValue(c.Old)
		if err == nil && isTimeField(f.Kind, c.Path) {
			old, err = readTimeValue(old)
		}
		if err != nil {
			return fmt.Errorf("event of %s %s: changed %s: %w", f.Kind, f.ID, c.Path, err)
		}
		e.Changed = append(e.Changed, FieldChange{c.Path, old})
	}
	return nil
}

// timeFieldsOf has the names of each kind's fields that are times.
var timeFieldsOf = func() (of [256]map[string]bool) {
	for kind, row := range kinds {
		if row == nil {
			continue
		}
		of[kind] = map[string]bool{}
		for _, s := range slots(row.fields.newObject()) {
			if _, is := s.p.(*Time); is {
				of[kind][s.name] = true
			}
		}
	}
	return of
}()

func isTimeField(kind Kind, field string) bool { return timeFieldsOf[kind][field] }

// ShownValue returns a field's value in the form in which JSON and people get it: a time,
// which a Value has in nanoseconds since 1970, as RFC 3339 with milliseconds, or with all
// its digits if it has more; nil for no time. Other values are returned as they are.
func ShownValue(kind Kind, field string, v Value) Value {
	n, is := v.(uint64)
	switch t := Time(n); {
	case !is || !isTimeField(kind, field):
		return v
	case n == 0:
		return nil
	case n%1_000_000 == 0:
		return t.String()
	default:
		return t.Std().Format(nanoLayout)
	}
}

// shownChanges returns changes with their old values as ShownValue gives them.
func shownChanges(kind Kind, changed []FieldChange) []FieldChange {
	if !slices.ContainsFunc(changed, func(c FieldChange) bool { return isTimeField(kind, c.Path) }) {
		return changed
	}
	shown := slices.Clone(changed)
	for i := range shown {
		shown[i].Old = ShownValue(kind, shown[i].Path, shown[i].Old)
	}
	return shown
}

// readTimeValue turns an old value of a time back into a Value. Older programs
// wrote nanoseconds since 1970, which are taken too.
func readTimeValue(v Value) (Value, error) {
	switch v := v.(type) {
	case nil:
		return uint64(0), nil
	case string:
		t, err := ParseTime(v)
		return uint64(t), err
	}
	return v, nil
}

// jsonValue turns an old value, as JSON with numbers kept as text gave it, into
// a Value.
func jsonValue(x any) (Value, error) {
	if n, ok := x.(json.Number); ok {
		seq, err := ParseSeq(n.String())
		if err != nil {
			return nil, fmt.Errorf("number %s: want a whole number of 0 or more", n)
		}
		return uint64(seq), nil
	}
	return plainValue(x)
}

// readJSON reads one JSON value into p. Old values keep their 64 bits.
func readJSON(data []byte, p any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(p); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text after the event")
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (e *Event) MarshalJSON() ([]byte, error) {
	f, err := e.form()
	if err != nil {
		return nil, err
	}
	return appendStruct(nil, &f)
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *Event) UnmarshalJSON(data []byte) error {
	var f eventJSON
	if err := readJSON(data, &f); err != nil {
		return err
	}
	return e.setForm(&f)
}

// MarshalJSON implements json.Marshaler.
func (l Line) MarshalJSON() ([]byte, error) {
	return l.AppendJSON(nil)
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *Line) UnmarshalJSON(data []byte) error {
	var f lineJSON
	if err := readJSON(data, &f); err != nil {
		return err
	}
	chain, err := ParseChainPrefix(f.Chain)
	if err != nil {
		return err
	}
	event := new(Event)
	if err := event.setForm(&f.eventJSON); err != nil {
		return err
	}
	*l = Line{f.Seq, chain, event}
	return nil
}

// MarshalJSON implements json.Marshaler: the entry's Line.
func (e Entry) MarshalJSON() ([]byte, error) {
	event, err := e.Event()
	if err != nil {
		return nil, err
	}
	return Line{e.Seq, e.Hash.Prefix(), event}.MarshalJSON()
}
