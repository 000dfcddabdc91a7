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

// Apply is total: for any bytes of a change each server computes the same result and goes
// on (docs/safety.md, A1). The steps that can fail because of the change's content come
// first, and end in a refusal. The state is altered after them.

// decided is the outcome of a change, before anything of it is applied.
type decided struct {
	events []*log.Event
	slots  []changesdb.Slot // like bodies, they belong to the applier until the next change
	bodies [][]byte         // of the events' objects; nil for a delete
	bytes  int              // of the encoded events
	result log.Result
}

// readChange decodes a change as all programs read it at the replicated feature version. A
// change that cannot be read is refused. A change of a newer format stops the server
// (SAFETY D1), like a command that it does not know.
func (a *applier) readChange(raw []byte) (c *log.Change, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v: %s: %w", p, debug.Stack(), log.ErrCorrupt)
		}
	}()
	return a.dec.ChangeAt(a.store.state.Feature(), raw)
}

// refuseUnreadable is the result of a change that cannot be read. It has no id to
// remember. Older programs stopped here: only a leader that is damaged or malicious
// proposes such a change.
func (a *applier) refuseUnreadable(err error) log.Result {
	a.store.counters.unreadable.Add(1)
	a.store.counters.refused.Add(1)
	a.store.logger.Error("a change in the log cannot be read, and is refused: the leader that proposed it is damaged, or of another program", "raft_index", a.index, "error", err)
	return log.Result{Refusal: &log.Refusal{
		Code: log.CodeInvalidParameters, Message: "the change cannot be read",
		Errors: []log.FieldError{{Field: "change", Code: log.ElementInvalid, Message: "its bytes do not decode", Remedy: "send it by a program of this release"}},
	}}
}

// decide turns a change into entries, and applies none of them. Deciding and encoding
// need no lock, because this goroutine is the only writer. A panic becomes a refusal:
// deciding alters nothing, so the state is as before. The refusal does not quote the
// panic, because a server of another build might word it differently.
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

// refuseUndecided is the result of a change that made this program fail.
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

// refuseLarge is the result of a change with an event over a limit. Before
// log.FeatureContained a program stopped at such a change, so no server ever gave it
// another result.
func refuseLarge(id log.UUID, e *log.Event, limit string, most int) log.Result {
	return log.Result{ChangeID: id, Refusal: &log.Refusal{
		Code: log.CodeInvalidParameters, Message: "Invalid parameters",
		Errors: []log.FieldError{{
			Field: "ops", Code: log.ElementInvalid, Message: fmt.Sprintf("the %s of %s %s is over the limit %s", e.Action, e.Kind, log.Quote(e.ID), limit),
			Remedy: fmt.Sprintf("%d bytes are the most: send less in one change", most),
		}},
	}}
}

// fold applies the decided events to the state, in one step for readers. Nothing here
// depends on the change's content. An error or a panic leaves the state half altered and
// means that this server is damaged: it stops.
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
	a.store.headTime.Store(int64(a.head.Time))
	a.store.state.SetTime(a.head.Time)
	return nil
}

// encoderRoom: events and results of the applier lie in pieces of memory of so many bytes.
// The ring, which holds them longest, lets them go in their order.
const encoderRoom = 32 << 10

// trialBytes: on a cluster of the first feature version, a change of so many bytes or
// more is decided once before it is proposed. The refusal of a smaller change is short
// enough for a server of that version to read again.
const trialBytes = 2 << 10

// refuseEarly refuses a change before it is proposed or forwarded, if it could never be
// accepted, or if it would stop servers of the first feature version: they quote all of
// the request, and stop at an event over the limit. It never refuses a retry of a change
// that was accepted.
func (pr *proposer) refuseEarly(c *log.Change, size int) (log.Result, bool) {
	refusal := longID(c)
	if refusal == nil {
		refusal = pr.store.tooEarly(c)
	}
	if refusal == nil && size >= trialBytes {
		refusal = pr.try(c)
	}
	if refusal == nil {
		return log.Result{}, false
	}
	pr.store.counters.early.Add(1)
	return log.Result{ChangeID: c.ID, Refusal: refusal}, true
}

// tooEarly refuses a change that names what it reverts, before all servers know what that
// is: they would write it without. It is asked of the server that a client asked, too,
// because the leader may be of an older program.
func (s *Store) tooEarly(c *log.Change) *log.Refusal {
	if len(c.Reverts) == 0 {
		return nil
	}
	s.mu.RLock()
	feature := s.state.Feature()
	s.mu.RUnlock()
	if feature >= log.FeatureDeclared {
		return nil
	}
	return &log.Refusal{Code: log.CodeInvalidParameters, Message: "Invalid parameters", Errors: []log.FieldError{{
		Field: "reverts", Code: log.ElementInvalid,
		Message: fmt.Sprintf("the cluster's feature version is %d, and changes name what they revert from version %d on", feature, log.FeatureDeclared),
		Remedy:  "upgrade every server, wait until the feature version rises, and send it again; or send the change without it",
	}}}
}

// longID refuses an operation on an id that is too long for any object.
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

// try decides a change on the present state, in a cluster of the first feature version.
// It returns why the change must not be proposed, or nil.
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

// boundedResult returns a result as its proposer gets it: within the limits. A result that
// servers of the first feature version agreed on may exceed them.
func boundedResult(r log.Result) log.Result {
	r.Refusal = r.Refusal.Bounded()
	return r
}

// knownResult returns the result of a change whose id is remembered: the first result if
// it is the same change, else a refusal.
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

// firstRow returns what is remembered of a change. The window has its hash, so a row that
// differs from that of other servers is an error.
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
