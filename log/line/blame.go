package line

import (
	"fmt"

	"rutter/log"
)

// Origin is the entry that a field's value comes from.
type Origin struct {
	Field string    `json:"field"`
	Value log.Value `json:"value"`
	Name  string    `json:"name,omitempty"` // of what Value names; a caller of Shown sets it
	// Seq is the entry that set the value. It is 0 if that entry is older than the
	// first one that was added. Then Time, Actor and Change are unknown too.
	Seq   log.Seq  `json:"seq"`
	Time  log.Time `json:"time,omitzero"`
	Actor string   `json:"actor,omitempty"`
	// Reverts are the entries that this one takes back.
	Reverts log.Reverts `json:"reverts,omitempty"`
	Change  log.UUID    `json:"change_id,omitzero"`
	Old     log.Value   `json:"old"` // before that entry
}

// A Blame finds which event set each field of one object. The events are added in
// order. The zero value is ready for Add.
type Blame struct {
	last    log.Line
	origins map[string]Origin
}

// Add takes the next event. It fails for an event of another object.
func (b *Blame) Add(l log.Line) error {
	e := l.Event
	if b.last.Event != nil && (b.last.Event.Kind != e.Kind || b.last.Event.ID != e.ID) {
		return fmt.Errorf("seq %d is of %s %s, and this is the blame of %s %s", l.Seq, e.Kind, e.ID, b.last.Event.Kind, b.last.Event.ID)
	}
	b.last = l
	origin := Origin{Seq: l.Seq, Time: e.Time, Actor: e.Actor, Change: e.ChangeID, Reverts: e.Reverts}
	if e.Action == log.Create || b.origins == nil {
		b.origins = make(map[string]Origin)
	}
	if e.Action == log.Create {
		for _, name := range log.FieldNames(e.Kind) {
			b.origins[name] = origin
		}
	}
	for _, change := range e.Changed {
		origin.Old = change.Old
		b.origins[change.Path] = origin
	}
	return nil
}

// Last returns the object's last entry, and whether an entry was added.
func (b *Blame) Last() (log.Line, bool) { return b.last, b.last.Event != nil }

// Shown returns the origins with their values as JSON has them: times as texts.
func (b *Blame) Shown() []Origin {
	fields := b.Fields()
	for i := range fields {
		o := &fields[i]
		o.Value, o.Old = log.ShownValue(b.last.Event.Kind, o.Field, o.Value), log.ShownValue(b.last.Event.Kind, o.Field, o.Old)
	}
	return fields
}

// Fields returns the origins in the order of the object's fields: of those that
// are set, and of those that were changed to nothing.
func (b *Blame) Fields() []Origin {
	if b.last.Event == nil {
		return nil
	}
	fields := []Origin{}
	for _, name := range log.FieldNames(b.last.Event.Kind) {
		o := b.origins[name]
		o.Field = name
		o.Value, _ = log.Field(b.last.Event.Object, name)
		if o.Old == nil && (o.Value == nil || o.Value == false || o.Value == uint64(0)) {
			continue
		}
		fields = append(fields, o)
	}
	return fields
}

// AppendBlame appends the origins as text: one line for each field. Of o it takes the
// colours and the names.
func AppendBlame(out []byte, b *Blame, o Options) []byte {
	p := NewPrinter(Options{Colour: o.Colour, Names: o.Names})
	fields := b.Fields()
	width, values := 0, make([]string, len(fields))
	for i, o := range fields {
		width = max(width, len(o.Field))
		values[i] = p.value(o.Field, o.Value)
	}
	if last, ok := b.Last(); ok && last.Event.Action == log.Delete {
		out = p.lines(out, last)
	}
	for i, o := range fields {
		if o.Seq == 0 {
			out = append(out, pad("before what is kept", timeWidth+2+seqWidth)...)
		} else {
			out = p.put(out, p.p.time, pad(o.Time.String(), timeWidth))
			out = p.put(out, p.p.seq, " "+pad("#"+o.Seq.String(), seqWidth+1))
		}
		out = append(p.put(append(out, ' '), p.p.path, pad(o.Field, width)), ' ')
		out = p.put(out, p.p.is, values[i])
		if o.Old != nil {
			out = append(append(out, "  was "...), p.value(o.Field, o.Old)...)
		}
		if o.Seq > 0 {
			out = p.put(out, p.p.actor, "  by "+safe(o.Actor)+"  change "+o.Change.String())
			out = p.reverts(out, o.Reverts)
		}
		out = append(out, '\n')
	}
	return out
}
