package agent

import (
	"fmt"
	"slices"
	"time"

	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// Entry takes one entry. Entries of a change are held back until the change is
// complete. The stream is filtered, so a change is complete with its last event, or
// with the first message after its seq.
func (r *replica) Entry(m *feed.Entry) error {
	if err := m.Parse(); err != nil {
		return fmt.Errorf("entry %d: %w", m.Seq, err)
	}
	event, body := m.Parsed, m.Body
	if event.ID == "" || event.Object == nil || event.Object.ID() != event.ID {
		return fmt.Errorf("%w: entry %d of %s %q has another object", errStream, m.Seq, event.Kind, event.ID)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.sameLog("entry", m.Seq); err != nil {
		return err
	}
	if len(r.pending) > 0 && m.Seq > r.pendingLast {
		if err := r.flush(); err != nil {
			return err
		}
	}
	if m.Seq <= r.folded {
		return nil // taken already
	}
	if event.More == 0 && len(r.pending) == 0 {
		if err := r.fold(m.Seq, event, body); err != nil {
			return err
		}
		r.notify()
		return nil
	}
	r.pendingLast = m.Seq + log.Seq(event.More)
	if err := r.hold(m); err != nil {
		return err
	}
	if event.More > 0 {
		return nil
	}
	return r.flush()
}

// hold keeps a frame back until its change is complete.
func (r *replica) hold(m feed.Message) error {
	if len(r.pending) >= maxPending {
		return fmt.Errorf("%w: a change of more than %d frames", errStream, maxPending)
	}
	r.pending = append(r.pending, m)
	return nil
}

// flush folds the frames that were held back.
func (r *replica) flush() error {
	if len(r.pending) == 0 {
		return nil
	}
	frames := r.pending
	r.pending = nil
	for _, m := range frames {
		switch m := m.(type) {
		case *feed.Entry:
			if err := r.fold(m.Seq, m.Parsed, m.Body); err != nil {
				return err
			}
		case *feed.Object:
			object, body, err := log.DecodeObjectAndBody(m.Kind, m.ID, m.Bytes)
			if err != nil {
				return fmt.Errorf("object %s %s: %w", m.Kind, m.ID, err)
			}
			if err := r.object(m, object, body); err != nil {
				return err
			}
		}
	}
	r.notify()
	return nil
}

// fold takes one event.
//
// An event may be older than a held scope (as-of beyond it). Then that scope has its
// outcome already, or the object has left it since. So an event of a known object is
// always taken if it is newer. But an object enters, or stays, only through a scope
// whose as-of is before the event.
func (r *replica) fold(seq log.Seq, event *log.Event, body []byte) error {
	r.folded = seq
	r.head = max(r.head, seq)
	key := objectKey{event.Kind, event.ID}
	before, known := r.state.Find(event.Object)
	if known && r.isOld(key, before, seq) {
		return nil
	}
	if event.Action == log.Delete {
		r.view.follow(key, kept{})
		r.drop(key)
		return nil
	}
	if !known && !slices.ContainsFunc(event.Scopes, r.scopes.behind(seq)) {
		return nil
	}
	rec := projections.Record{Object: event.Object, Revision: event.Revision, Seq: seq}
	r.view.follow(key, kept{rec, body})
	if err := r.put(key, before.Object, kept{rec, body}); err != nil {
		return err
	}
	if _, unknown := rec.Object.(*log.Unknown); !unknown && !r.state.InAny(rec.Object, r.scopes.behind(seq)) {
		r.drop(key)
	}
	if known && movesCN(before.Object, rec.Object) {
		r.dropStrays(before.Object)
	}
	return nil
}

// movesCN reports whether a CN's interest may have lost a scope when a NIC changed from
// one state to the other.
func movesCN(before, after log.Object) bool {
	a, ok := before.(*log.NIC)
	if !ok {
		return false
	}
	b := after.(*log.NIC)
	return a.CNUUID != b.CNUUID || a.NetworkUUID != b.NetworkUUID
}

// holds reports whether a held scope contains the object.
func (r *replica) holds(key objectKey) bool { return r.scopes.contain(r.state, key, log.Scope{}) }

// setScope records what is held of a scope.
func (r *replica) setScope(scope log.Scope, held heldScope) {
	r.scopes[scope] = held
	r.outbox.dirty.Scopes[scope] = &held
	r.interestKnown = false
}

// put places a record, over before if that is not nil, and marks its row as changed.
func (r *replica) put(key objectKey, before log.Object, rec kept) error {
	r.clashes.note(key, rec.Object)
	if err := r.moving(before, rec.Object, func() error { return r.state.LoadEncoded(rec.Record, rec.Body) }); err != nil {
		return fmt.Errorf("%w: %w", errStream, err)
	}
	r.touches.Note(before, rec.Object)
	if before == nil {
		r.objects++
	}
	r.outbox.dirty.Objects[key] = rec
	r.touch(rec.Object)
	if r.reset != nil {
		r.reset.objects[key] = struct{}{}
	}
	r.clashes.mend(key)
	return nil
}

// drop forgets an object, and what was held only because of it.
func (r *replica) drop(key objectKey) {
	rec, known := r.state.Get(key.Kind, key.ID)
	if !known {
		return
	}
	_ = r.moving(rec.Object, nil, func() error { r.state.Drop(key.Kind, key.ID); return nil })
	r.touches.Note(rec.Object, nil)
	r.objects--
	r.outbox.dirty.Objects[key] = kept{}
	r.touch(rec.Object)
	if r.reset != nil {
		delete(r.reset.objects, key)
	}
	r.clashes.mend(key)
	r.dropStrays(rec.Object)
}

// touch marks interest as outdated: it follows from this CN's NICs and their networks.
func (r *replica) touch(o log.Object) {
	switch o := o.(type) {
	case *log.Network:
		r.interestKnown = false
	case *log.NIC:
		if o.CNUUID == r.cn {
			r.interestKnown = false
		}
	}
}

// dropStrays forgets the underlay NICs of the CN that a NIC was on, if no held scope
// contains them any more. They belong to a vnet only while their CN has a NIC there,
// and no event reports the end (SAFETY F1). During a reset nothing is removed before
// its end.
func (r *replica) dropStrays(was log.Object) {
	nic, ok := was.(*log.NIC)
	if !ok || nic.CNUUID.IsZero() || nic.CNUUID == r.cn || r.reset != nil {
		return
	}
	var strays []objectKey
	for rec := range r.state.UnderlayNICs(nic.CNUUID) {
		if key := keyOf(rec); !r.holds(key) {
			strays = append(strays, key)
		}
	}
	for _, key := range strays {
		r.drop(key)
	}
}

// notify wakes the reconcile loop, and the cache's writer if it has rows. One token is
// enough.
func (r *replica) notify() {
	if r.touched.IsZero() && r.touches.Any() {
		r.touched = time.Now()
	}
	wake(r.changed)
	if r.outbox.ready.rows() > 0 {
		wake(r.dirtied)
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// moving changes a held object to another, nil for none, and records the change if it
// is a NIC, or the changes of the NICs on it if it is a network.
func (r *replica) moving(before, after log.Object, do func() error) error {
	was, on := placeIn(r.state, before), placesOn(r.state, before, after)
	if err := do(); err != nil {
		return err
	}
	r.noteMove(was, placeIn(r.state, after))
	for i, is := range placesOn(r.state, before, after) {
		r.noteMove(on[i], is)
	}
	return nil
}

func (r *replica) noteMove(was, is Place) {
	if was == is {
		return
	}
	if c := r.journal.note(was, is); c.isGone() {
		r.outbox.dirty.Gone = cutGone(append(r.outbox.dirty.Gone, c))
	}
}
