package report

import (
	"encoding/json"
	"errors"
	"fmt"

	"rutter/log"
)

// Bounds of a report. What is more waits for the next one.
const (
	MaxChanges = 128 // changes in one report
	MaxLooks   = 256 // objects that one report asks for
)

// CodeStale is the code of the answer to a report that is older than one which
// the server knows of.
const CodeStale = "StaleReport"

// ErrBounds: a report, or an answer to one, is larger than any that is sent.
var ErrBounds = errors.New("report: more than a report may hold")

// Report is what a CN says once. Reports of one CN are ordered by Incarnation,
// then Counter; a server that knows a newer one ignores an older.
type Report struct {
	Incarnation uint64 `json:"incarnation"` // of the CN's agent
	Counter     uint64 `json:"counter"`     // of reports within the incarnation, from 1
	// Changes are decided one by one: what becomes of one says nothing of another.
	Changes []Change `json:"changes,omitempty"`
	// Look names NICs whose state is wanted as it is after Changes.
	Look []log.MAC `json:"look,omitempty"`
	// Networks names networks, by name, whose state is wanted likewise.
	Networks []string `json:"networks,omitempty"`
	// Aggregations names aggregations, by id, likewise.
	Aggregations []string `json:"aggregations,omitempty"`
}

// Change is one change of the log. Its JSON form is the log's own encoding, so
// that a report is refused where the log itself would not read it.
type Change struct{ log.Change }

// MarshalJSON implements json.Marshaler.
func (c Change) MarshalJSON() ([]byte, error) {
	b, err := log.NewEncoder().Change(&c.Change)
	if err != nil {
		return nil, fmt.Errorf("report: change %s: %w", c.ID, err)
	}
	return json.Marshal(b)
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Change) UnmarshalJSON(text []byte) error {
	var b []byte
	if err := json.Unmarshal(text, &b); err != nil {
		return fmt.Errorf("report: change: %w", err)
	}
	decoded, err := log.DecodeChange(b)
	if err != nil {
		return fmt.Errorf("report: change: %w", err)
	}
	c.Change = *decoded
	return nil
}

// Outcome is what became of one change: it is in the log, it was refused, or
// nobody knows (Unknown): the same change may be sent again.
type Outcome struct {
	Last    log.Seq      `json:"last,omitempty"`
	Refusal *log.Refusal `json:"refusal,omitempty"`
	Unknown string       `json:"unknown,omitempty"` // why
}

// Found is an object as the log has it; Object is nil if it is not there.
type Found struct {
	Kind     log.Kind
	Key      string // what it was asked for by
	Revision log.Revision
	Seq      log.Seq // of its last event
	Object   log.Object
}

type foundJSON struct {
	Kind     log.Kind     `json:"kind"`
	Key      string       `json:"key"`
	ID       string       `json:"id,omitempty"`
	Revision log.Revision `json:"revision,omitempty"`
	Seq      log.Seq      `json:"seq,omitempty"`
	Object   []byte       `json:"object,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (f Found) MarshalJSON() ([]byte, error) {
	form := foundJSON{Kind: f.Kind, Key: f.Key}
	if f.Object != nil {
		b, err := log.NewEncoder().Object(f.Object)
		if err != nil {
			return nil, fmt.Errorf("report: %s %s: %w", f.Kind, f.Key, err)
		}
		form.ID, form.Revision, form.Seq, form.Object = f.Object.ID(), f.Revision, f.Seq, b
	}
	return json.Marshal(form)
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *Found) UnmarshalJSON(text []byte) error {
	var form foundJSON
	if err := json.Unmarshal(text, &form); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	*f = Found{Kind: form.Kind, Key: form.Key}
	if len(form.Object) == 0 {
		return nil
	}
	o, err := log.DecodeObject(form.Kind, form.ID, form.Object)
	if err != nil {
		return fmt.Errorf("report: %s %s: %w", form.Kind, form.Key, err)
	}
	f.Object, f.Revision, f.Seq = o, form.Revision, form.Seq
	return nil
}

// Answer is what a server says to a report.
type Answer struct {
	Cluster log.UUID `json:"cluster"` // whose log it is
	Seq     log.Seq  `json:"seq"`     // that Found is as of: not before the report came
	// Stale: the report is older than one of this incarnation and counter, so
	// nothing of it was done.
	Stale       bool      `json:"stale,omitempty"`
	Incarnation uint64    `json:"incarnation,omitempty"`
	Counter     uint64    `json:"counter,omitempty"`
	Outcomes    []Outcome `json:"outcomes,omitempty"` // of the changes, in their order
	Found       []Found   `json:"found,omitempty"`    // what was looked for, in its order
}

// Check says what is wrong with a report before anything of it is done.
func (r *Report) Check() error {
	switch {
	case r.Incarnation == 0 || r.Counter == 0:
		return errors.New("report: incarnation and counter are 1 or more")
	case len(r.Changes) > MaxChanges || len(r.Look) > MaxLooks || len(r.Networks) > MaxLooks || len(r.Aggregations) > MaxLooks:
		return fmt.Errorf("%w: %d changes (%d), %d looks (%d)", ErrBounds, len(r.Changes), MaxChanges, len(r.Look)+len(r.Networks)+len(r.Aggregations), MaxLooks)
	}
	for i := range r.Changes {
		for _, op := range r.Changes[i].Ops {
			if op.Kind != log.KindNIC && op.Kind != log.KindAggregation {
				return fmt.Errorf("report: changes.%d: a compute node reports NICs and aggregations, not a %s", i, op.Kind)
			}
		}
	}
	return nil
}
