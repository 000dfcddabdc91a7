package projections

import (
	"fmt"
	"iter"

	"rutter/log"
)

// State is the fold of a log, or of the part of it that a CN holds. See the
// package comment for who may call what at the same time.
type State struct {
	store
	time    log.Time
	feature uint32 // the replicated feature version, which Decide behaves by
}

// NewState returns the state before the first entry. It decides as the newest
// feature version does, until SetFeature names another.
func NewState() *State {
	s := &State{store: *newStore(), feature: log.FeatureVersion}
	s.plain = plainNames{map[plainName]*row{}, sets[plainName]{}}
	s.interest = newInterest()
	s.digests = newDigests()
	return s
}

// NewSmallState is NewState for a node that holds many NICs of others and
// decides nothing: they are kept in a third of the room, and made anew for each
// who asks for them. It says the same as any other.
func NewSmallState() *State {
	s := NewState()
	s.shapes = shapes{}
	s.plain = plainNames{} // agents are not asked for names
	return s
}

// NewPart is NewState for a part of a state that is loaded to be looked at: what
// it costs to follow the digests is saved, so that it has none.
func NewPart() *State {
	s := NewState()
	s.digests = nil
	return s
}

// Delta says what one event moved.
type Delta struct {
	// Scopes are those of the object before and after the event, sorted: who
	// holds one of them must hear of it (SAFETY F1).
	Scopes []log.Scope
	// Gained and Lost are the CNs whose interest gained or lost a scope through
	// this event, sorted. The underlay NICs of a CN that gained a vnet entered
	// the vnet's scope with it, without an event of their own; those of a CN
	// that lost one left it.
	Gained, Lost []Gain
}

// Apply folds the event at seq. An error means that it does not fit the state
// (wrong revision, object missing or there already, seq not newer): log or
// state are corrupt, and the caller stops. The state is then unchanged.
//
// It is for states that see every event. Those of a filtered stream use Load and Drop.
func (s *State) Apply(seq log.Seq, e *log.Event) (Delta, error) { return s.ApplyEncoded(seq, e, nil) }

// ApplyEncoded is Apply for a caller that has encoded the event's object already: body
// is what log.Encoder.EventAndBody gave, or nil.
func (s *State) ApplyEncoded(seq log.Seq, e *log.Event, body []byte) (Delta, error) {
	r, err := s.rowOf(e)
	if err == nil {
		err = fits(seq, e, r)
	}
	if err != nil {
		return Delta{}, fmt.Errorf("seq %d: %s of %s %s: %w", seq, e.Action, e.Kind, e.ID, err)
	}
	if Mends(e) {
		s.time = e.Time
	}
	s.SetTime(e.Time)
	if e.Action == log.Delete {
		s.remove(r)
	} else {
		s.putOver(r, Record{e.Object, e.Revision, seq}, body, e.ID)
	}
	d := Delta{Scopes: e.Scopes}
	d.Gained, d.Lost = s.interest.take()
	return d, nil
}

// rowOf returns the row of the event's object, or nil, after it saw that the
// event is well formed.
func (s *State) rowOf(e *log.Event) (*row, error) {
	if err := Check(e.Object); err != nil {
		return nil, err
	}
	if e.Object.Kind() != e.Kind || !named(e.Object, e.ID) {
		return nil, fmt.Errorf("it holds %s %s: %w", e.Object.Kind(), e.Object.ID(), log.ErrCorrupt)
	}
	return s.rowOfObject(e.Object), nil
}

// fits compares the event with what is held.
func fits(seq log.Seq, e *log.Event, r *row) error {
	var held log.Revision
	if r != nil {
		held = r.revision
	}
	switch {
	case e.Action == log.Create && r != nil:
		return fmt.Errorf("the object is there already, at revision %d: %w", held, log.ErrCorrupt)
	case e.Action != log.Create && r == nil:
		return fmt.Errorf("there is no such object: %w", log.ErrCorrupt)
	case e.Action != log.Create && e.Action != log.Update && e.Action != log.Delete:
		return fmt.Errorf("the action is not known: %w", log.ErrFormat)
	case e.Revision != held+1:
		return fmt.Errorf("revision %d follows %d: %w", e.Revision, held, log.ErrCorrupt)
	case r != nil && r.seq >= seq:
		return fmt.Errorf("the object is of seq %d already: %w", r.seq, log.ErrCorrupt)
	}
	return nil
}

// Load puts one object as it was stored: at restart, from a snapshot, into an
// agent's cache. It replaces what is held of the object, in any order of
// objects. The error wraps log.ErrCorrupt if the record has no proper object.
func (s *State) Load(r Record) error { return s.LoadEncoded(r, nil) }

// LoadEncoded is Load for who has the object encoded: body is its bytes without
// the format byte, or nil.
func (s *State) LoadEncoded(r Record, body []byte) error {
	if err := Check(r.Object); err != nil {
		return err
	}
	s.put(r, body)
	s.interest.take()
	return nil
}

// Drop forgets an object without an event: one of a scope that an agent no
// longer holds. Dropping what is not held does nothing.
func (s *State) Drop(kind log.Kind, id string) {
	key, err := keyOf(kind, id)
	if err != nil {
		return
	}
	if r := s.row(kind, key); r != nil {
		s.remove(r)
		s.interest.take()
	}
}

// Time returns the time of the last event that was folded, or what SetTime
// gave. It goes back only with an event that sets the log's time: see Mends.
func (s *State) Time() log.Time { return s.time }

// SetTime moves the time forward to t, as after a restart; an earlier t does
// nothing.
func (s *State) SetTime(t log.Time) { s.time = max(s.time, t) }

// SetFeature names the replicated feature version, by which Decide behaves: a
// cluster of servers of which some know no higher one must go on as they do.
func (s *State) SetFeature(version uint32) { s.feature = version }

// Feature returns the feature version by which Decide behaves.
func (s *State) Feature() uint32 { return s.feature }

// Get returns the object of an id, which may be in any form that log.ParseMAC
// or log.ParseUUID take.
func (s *State) Get(kind log.Kind, id string) (Record, bool) {
	key, err := keyOf(kind, id)
	if err != nil {
		return Record{}, false
	}
	r := s.row(kind, key)
	if r == nil {
		return Record{}, false
	}
	return r.record(), true
}

// Find returns the object of the same kind and id as o.
func (s *State) Find(o log.Object) (Record, bool) {
	r := s.rowOfObject(o)
	if r == nil {
		return Record{}, false
	}
	return r.record(), true
}

// List yields the objects of a kind, sorted by id.
func (s *State) List(kind log.Kind) iter.Seq[Record] {
	return records(s.tableOrder(kind))
}

// Count returns the number of objects of a kind.
func (s *State) Count(kind log.Kind) int {
	return s.tableOrder(kind).len()
}

// Len returns the number of all objects.
func (s *State) Len() (n int) {
	for _, t := range s.tables {
		if t != nil {
			n += t.rows.n
		}
	}
	return n
}

func records(set *sorted[*row]) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for r := range set.all() {
			if !yield(r.record()) {
				return
			}
		}
	}
}
