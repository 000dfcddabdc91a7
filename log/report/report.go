package report

import (
	"encoding/json"
	"errors"
	"fmt"

	"rutter/log"
)

// Bounds of a report. The rest waits for the next report.
const (
	MaxChanges = 128 // changes in one report
	MaxLooks   = 256 // objects that one report asks for
)

// ErrBounds: a report or an answer exceeds the bounds.
var ErrBounds = errors.New("report: more than a report may hold")

// Report is one report of a CN. Reports of one CN are ordered by Incarnation, then
// Counter. A server that has received a newer one ignores an older one.
type Report struct {
	Incarnation uint64 `json:"incarnation"` // of the CN's agent
	Counter     uint64 `json:"counter"`     // of reports within the incarnation, from 1
	// Changes are decided one by one. The result of one does not depend on another.
	Changes []Change `json:"changes,omitempty"`
	// Look names NICs whose state after Changes the CN asks for.
	Look []log.MAC `json:"look,omitempty"`
	// Networks names networks, by name, whose state the CN asks for.
	Networks []string `json:"networks,omitempty"`
	// Aggregations names aggregations, by id, whose state the CN asks for.
	Aggregations []string `json:"aggregations,omitempty"`
}

// Change is one change of the log. Its JSON form is the log's own encoding, so a change
// that the log could not read is refused with the report.
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

// Outcome is the result of one change: it is in the log, it was refused, or its fate is
// unknown (Unknown). In the last case the same change may be sent again.
type Outcome struct {
	Last    log.Seq      `json:"last,omitempty"`
	Refusal *log.Refusal `json:"refusal,omitempty"`
	Unknown string       `json:"unknown,omitempty"` // why
}

// Found is an object as the log has it. Object is nil if the log does not have it.
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

// Answer is a server's answer to a report.
type Answer struct {
	Cluster log.UUID `json:"cluster"` // whose log it is
	Seq     log.Seq  `json:"seq"`     // Found is as of this seq, which is not before the report came
	// Stale: the report is older than the one with this incarnation and counter. The
	// server did nothing.
	Stale       bool      `json:"stale,omitempty"`
	Incarnation uint64    `json:"incarnation,omitempty"`
	Counter     uint64    `json:"counter,omitempty"`
	Outcomes    []Outcome `json:"outcomes,omitempty"` // of the changes, in their order
	Found       []Found   `json:"found,omitempty"`    // what Look, Networks and Aggregations name, in that order
}

// Check refuses a report that exceeds the bounds, before any change of it is decided.
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
