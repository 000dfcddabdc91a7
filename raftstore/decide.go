package raftstore

import (
	"errors"
	"fmt"
	"runtime/debug"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/window"
)

// Apply is total: whatever bytes a change has, each server comes to the same
// result, and goes on (docs/safety.md, A1). What can fail by the change's
// content comes first and ends as a refusal; the state is altered after it.

// decided is what a change comes to, before anything of it is applied.
type decided struct {
	events []*log.Event
	slots  []changesdb.Slot // as bodies, they are the applier's until the next change
	bodies [][]byte         // of the events' objects; nil for a delete
	bytes  int              // of the encoded events
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
func (a *applier) refuseUnreadable(err error) log.Result {
	a.store.counters.unreadable.Add(1)
	a.store.counters.refused.Add(1)
	a.store.logger.Error("a change in the log cannot be read, and is refused: the leader that proposed it is damaged, or of another program", "raft_index", a.index, "error", err)
	return log.Result{Refusal: &log.Refusal{
		Code: log.CodeInvalidParameters, Message: "the change cannot be read",
		Errors: []log.FieldError{{Field: "change", Code: log.ElementInvalid, Message: "its bytes do not decode", Remedy: "send it by a program of this release"}},
	}}
}

// decide turns a change into entries, of which nothing is applied. Readers only
// read, and this goroutine is the one writer: deciding and encoding need no lock.
// A panic is a refusal: deciding alters nothing, so the state is what it was. It
// says nothing of the panic, which a server of another build might word otherwise.
func (a *applier) decide(c *log.Change) (d decided) {
	defer func() {
		if p := recover(); p != nil {
			d = decided{result: a.refuseUndecided(c.ID, fmt.Errorf("panic: %v", p), debug.Stack())}
		}
	}()
	events, result := rules.Decide(a.store.state, c)
	d = decided{events: events, result: result}
	if result.Refusal != nil {
		return d
	}
	clear(a.bodies)
	clear(a.slots)
	d.bodies, d.slots = a.bodies[:0], a.slots[:0]
	seq, hash := a.head.Seq, a.head.Hash
	for _, e := range events {
		bytes, body, err := a.enc.EventAndBody(e)
		if errors.Is(err, log.ErrTooLarge) {
			return decided{result: refuseLarge(c.ID, e, "event_bytes", log.MaxEventBytes)}
		}
		if err != nil {
			return decided{result: a.refuseUndecided(c.ID, err, nil)}
		}
		if d.bytes += len(bytes); d.bytes > log.MaxChangeEvents && a.store.state.Feature() >= log.FeatureContained {
			return decided{result: refuseLarge(c.ID, e, "change_events_bytes", log.MaxChangeEvents)}
		}
		seq++
		hash = hash.Next(seq, bytes)
		if e.Action == log.Delete {
			body = nil
		}
		d.slots, d.bodies = append(d.slots, changesdb.Slot{Entry: log.Entry{Seq: seq, Hash: hash, Bytes: bytes}, More: e.More}), append(d.bodies, body)
	}
	a.bodies, a.slots = d.bodies, d.slots
	if err := a.store.state.Fits(a.head.Seq+1, events); err != nil {
		return decided{result: a.refuseUndecided(c.ID, err, nil)}
	}
	d.result.First, d.result.Last, d.result.Events = a.head.Seq, seq, uint32(len(events))
	if len(events) > 0 {
		d.result.First++
	}
	return d
}

// refuseUndecided is the result of a change on which this program failed.
func (a *applier) refuseUndecided(id log.UUID, err error, stack []byte) log.Result {
	a.store.counters.undecided.Add(1)
	a.store.logger.Error("this program failed to decide a change, which is refused: report it", "change", id, "raft_index", a.index, "error", err, "stack", string(stack))
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
func (a *applier) fold(d *decided) error {
	durable := a.store.persister.Durable()
	a.head.Seq += log.Seq(len(d.slots))
	if n := len(d.slots); n > 0 {
		a.head.Hash = d.slots[n-1].Hash
	}
	a.store.mu.Lock()
	defer a.store.mu.Unlock()
	for i, e := range d.events {
		if _, err := a.store.state.ApplyEncoded(d.slots[i].Seq, e, d.bodies[i]); err != nil {
			return err
		}
		a.store.ring.Push(d.slots[i], durable)
	}
	a.store.head.Seq, a.store.head.Hash, a.store.head.Time = a.head.Seq, a.head.Hash, a.head.Time
	a.store.state.SetTime(a.head.Time)
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
func (pr *proposer) refuseEarly(c *log.Change, size int) (log.Result, bool) {
	refusal := longID(c)
	if refusal == nil && size >= trialBytes {
		refusal = pr.try(c)
	}
	if refusal == nil {
		return log.Result{}, false
	}
	pr.store.counters.early.Add(1)
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
func (pr *proposer) try(c *log.Change) (refusal *log.Refusal) {
	defer func() {
		if p := recover(); p != nil {
			pr.store.logger.Error("this program failed to decide a change, which is not proposed: report it", "change", c.ID, "error", p, "stack", string(debug.Stack()))
			refusal = undecided(c.ID).Refusal
		}
	}()
	pr.store.mu.RLock()
	defer pr.store.mu.RUnlock()
	if pr.store.state.Feature() >= log.FeatureContained {
		return nil
	}
	return tried(pr.store.state, c)
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

// knownResult answers a change whose id is remembered: with the first result, if it
// is that change.
func (a *applier) knownResult(c *log.Change, asker log.Asker, known *window.Known) (log.Result, error) {
	row, err := a.firstRow(c.ID, known)
	if err != nil {
		return log.Result{}, err
	}
	if !row.Is(c, asker) {
		a.store.counters.refused.Add(1)
		return log.Result{ChangeID: c.ID, Refusal: window.IDReused(c.ID)}, nil
	}
	a.store.counters.duplicates.Add(1)
	result, err := log.DecodeResult(row.Result)
	if err != nil {
		return log.Result{}, fmt.Errorf("first result of change %s: %w", c.ID, err)
	}
	return *result, nil
}

// firstRow is what is remembered of a change. It is the same on every server, or
// there is none: the window has its hash.
func (a *applier) firstRow(id log.UUID, known *window.Known) (window.Row, error) {
	value, ok := a.window.Result(known)
	if !ok {
		err := a.store.files.View(func(tx *bbolt.Tx) (err error) {
			_, value, err = window.ReadChangeRow(id[:], tx.Bucket(window.BucketChanges).Get(id[:]))
			return err
		})
		if err != nil {
			return window.Row{}, fmt.Errorf("first result of change %s: %w", id, err)
		}
	}
	if !known.Is(value) {
		return window.Row{}, fmt.Errorf("first result of change %s is another one than it was: %w", id, log.ErrCorrupt)
	}
	return window.OpenRow(id, value), nil
}
