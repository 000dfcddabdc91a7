package raftstore

import (
	"errors"
	"fmt"
	"runtime/debug"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
)

// Apply is total: whatever bytes a change has, each server comes to the same
// result, and goes on (docs/safety.md, A1). What can fail by the change's
// content comes first and ends as a refusal; the state is altered after it.

// decided is what a change comes to, before anything of it is applied.
type decided struct {
	events []*log.Event
	slots  []slot   // as bodies, they are the applier's until the next change
	bodies [][]byte // of the events' objects; nil for a delete
	bytes  int      // of the encoded events
	result log.Result
}

// readChange decodes a change. What cannot be read is refused. A change of a
// newer format stops the server (SAFETY D1), as a command that it does not know does.
func (a *applier) readChange(raw []byte) (c *log.Change, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v: %s: %w", p, debug.Stack(), log.ErrCorrupt)
		}
	}()
	return a.dec.Change(raw)
}

// refuseUnreadable is the result of a change that cannot be read. It has no id
// that could be remembered. Programs before this one stopped: no leader proposes
// such a change unless it is damaged or lies.
func (s *Store) refuseUnreadable(err error) log.Result {
	s.counters.unreadable.Add(1)
	s.counters.refused.Add(1)
	s.logger.Error("a change in the log cannot be read, and is refused: the leader that proposed it is damaged, or of another program", "raft_index", s.applier.index, "error", err)
	return log.Result{Refusal: &log.Refusal{
		Code: log.CodeInvalidParameters, Message: "the change cannot be read",
		Errors: []log.FieldError{{Field: "change", Code: log.ElementInvalid, Message: "its bytes do not decode", Remedy: "send it by a program of this release"}},
	}}
}

// decide turns a change into entries, of which nothing is applied. Readers only
// read, and this goroutine is the one writer: deciding and encoding need no lock.
// A panic is a refusal: deciding alters nothing, so the state is what it was. It
// says nothing of the panic, which a server of another build might word otherwise.
func (s *Store) decide(c *log.Change) (d decided) {
	defer func() {
		if p := recover(); p != nil {
			d = decided{result: s.refuseUndecided(c.ID, fmt.Errorf("panic: %v", p), debug.Stack())}
		}
	}()
	a := &s.applier
	events, result := rules.Decide(s.state, c)
	d = decided{events: events, result: result}
	if result.Refusal != nil {
		return d
	}
	clear(a.bodies)
	clear(a.slots)
	d.bodies, d.slots = a.bodies[:0], a.slots[:0]
	seq, hash := a.head.seq, a.head.hash
	for _, e := range events {
		bytes, body, err := a.enc.EventAndBody(e)
		if errors.Is(err, log.ErrTooLarge) {
			return decided{result: refuseLarge(c.ID, e, "event_bytes", log.MaxEventBytes)}
		}
		if err != nil {
			return decided{result: s.refuseUndecided(c.ID, err, nil)}
		}
		if d.bytes += len(bytes); d.bytes > log.MaxChangeEvents && s.state.Feature() >= log.FeatureContained {
			return decided{result: refuseLarge(c.ID, e, "change_events_bytes", log.MaxChangeEvents)}
		}
		seq++
		hash = hash.Next(seq, bytes)
		if e.Action == log.Delete {
			body = nil
		}
		d.slots, d.bodies = append(d.slots, slot{log.Entry{Seq: seq, Hash: hash, Bytes: bytes}, e.More}), append(d.bodies, body)
	}
	a.bodies, a.slots = d.bodies, d.slots
	if err := s.state.Fits(a.head.seq+1, events); err != nil {
		return decided{result: s.refuseUndecided(c.ID, err, nil)}
	}
	d.result.First, d.result.Last, d.result.Events = a.head.seq, seq, uint32(len(events))
	if len(events) > 0 {
		d.result.First++
	}
	return d
}

// refuseUndecided is the result of a change on which this program failed.
func (s *Store) refuseUndecided(id log.UUID, err error, stack []byte) log.Result {
	s.counters.undecided.Add(1)
	s.logger.Error("this program failed to decide a change, which is refused: report it", "change", id, "raft_index", s.applier.index, "error", err, "stack", string(stack))
	return undecided(id)
}

func undecided(id log.UUID) log.Result {
	return log.Result{ChangeID: id, Refusal: &log.Refusal{
		Code: log.CodeUndecided, Message: "the servers' program failed to decide the change; nothing of it was applied",
		Errors: []log.FieldError{{Field: "change", Code: log.ElementInvalid, Message: "deciding it failed", Remedy: "report it with what the servers' logs say of this change id"}},
	}}
}

// refuseLarge is the result of a change with an event over a limit. Up to the
// version before FeatureContained a program that met one stopped, so that no
// server has ever passed it by another answer.
func refuseLarge(id log.UUID, e *log.Event, limit string, most int) log.Result {
	return log.Result{ChangeID: id, Refusal: &log.Refusal{
		Code: log.CodeInvalidParameters, Message: "Invalid parameters",
		Errors: []log.FieldError{{
			Field: "ops", Code: log.ElementInvalid, Message: fmt.Sprintf("the %s of %s %s is over the limit %s", e.Action, e.Kind, log.Quote(e.ID), limit),
			Remedy: fmt.Sprintf("%d bytes are the most: send less in one change", most),
		}},
	}}
}

// fold applies what was decided to the state, in one step for readers. Nothing of
// it depends on the change's content any more: an error or a panic here left the
// state half altered, is this server's own damage, and stops it.
func (s *Store) fold(d *decided) error {
	durable := s.persister.durable()
	a := &s.applier
	a.head.seq += log.Seq(len(d.slots))
	if n := len(d.slots); n > 0 {
		a.head.hash = d.slots[n-1].Hash
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, e := range d.events {
		if _, err := s.state.ApplyEncoded(d.slots[i].Seq, e, d.bodies[i]); err != nil {
			return err
		}
		s.ring.push(d.slots[i], durable)
	}
	s.head.seq, s.head.hash, s.head.time = a.head.seq, a.head.hash, a.head.time
	s.state.SetTime(a.head.time)
	return nil
}

// trialBytes is the size of a change from which on a cluster of the first feature
// version tries it before it is proposed: what is smaller has no refusal that a
// server of that program cannot read again.
const trialBytes = 2 << 10

// refuseEarly refuses, before it is proposed or handed on, a change that could
// never be accepted, or that servers of the first feature version would not
// survive: they quote all of what was sent, and stop at an event over the limit. A
// retry of a change that was accepted is never among these.
func (s *Store) refuseEarly(c *log.Change, size int) (log.Result, bool) {
	refusal := longID(c)
	if refusal == nil && size >= trialBytes {
		refusal = s.try(c)
	}
	if refusal == nil {
		return log.Result{}, false
	}
	s.counters.early.Add(1)
	return log.Result{ChangeID: c.ID, Refusal: refusal}, true
}

// longID refuses an operation on an id that no object can have.
func longID(c *log.Change) *log.Refusal {
	for i := range c.Ops {
		n := len(c.Ops[i].ID)
		if n <= log.MaxIDBytes {
			continue
		}
		field := "id"
		if len(c.Ops) > 1 {
			field = fmt.Sprintf("ops.%d.id", i)
		}
		return &log.Refusal{Code: log.CodeInvalidParameters, Message: "Invalid parameters", Errors: []log.FieldError{{
			Field: field, Code: log.ElementInvalid, Message: fmt.Sprintf("%d is over the limit id_bytes", n), Remedy: fmt.Sprintf("%d are the most", log.MaxIDBytes),
		}}}
	}
	return nil
}

// try decides a change as the state is now, in a cluster of the first feature
// version, and returns why it must not be proposed, or nil.
func (s *Store) try(c *log.Change) (refusal *log.Refusal) {
	defer func() {
		if p := recover(); p != nil {
			s.logger.Error("this program failed to decide a change, which is not proposed: report it", "change", c.ID, "error", p, "stack", string(debug.Stack()))
			refusal = undecided(c.ID).Refusal
		}
	}()
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.state.Feature() >= log.FeatureContained {
		return nil
	}
	return tried(s.state, c)
}

func tried(state *projections.State, c *log.Change) *log.Refusal {
	events, result := rules.Decide(state, c)
	if result.Refusal != nil {
		if encoded, err := log.NewEncoder().Result(&result); err != nil || len(encoded) > log.MaxResultBytes {
			return result.Refusal.Bounded()
		}
		return nil
	}
	for _, e := range events {
		if _, err := log.NewEncoder().Event(e); err != nil {
			return refuseLarge(c.ID, e, "event_bytes", log.MaxEventBytes).Refusal
		}
	}
	return nil
}

// toldOf is a result as its proposer is told of it: within the limits, which it
// need not be where servers of the first feature version agreed on it.
func toldOf(r log.Result) log.Result {
	r.Refusal = r.Refusal.Bounded()
	return r
}
