package feedserver

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// visibility is the result of a look at the state: what a CN may see that was not sent
// yet, all of one head. The records are shared with the state and immutable.
type visibility struct {
	head     log.Cursor
	interest []log.Scope // nil: do not compare it with the held scopes
	added    []visibleScope
	met      []visibleObject
	// lapsed: a held scope is outside the interest at the head. It must be dropped now.
	// If it were kept until it enters the interest again, NICs that came meanwhile
	// would be missing in it.
	lapsed bool
}

type visibleScope struct {
	scope    log.Scope
	records  []projections.Record // none if the snapshot is complete
	snapshot *snapshot            // to send, or to make; nil: neither
}

type visibleObject struct {
	pair   projections.Gain
	record projections.Record
}

// look returns what the CN's interest at the head contains that it does not hold, and
// the underlay NICs of the CNs that became visible.
func (u *subscriber) look(met []projections.Gain) visibility {
	found := u.lookOnce(met, true)
	for _, a := range found.added {
		if a.snapshot == nil || !a.snapshot.done {
			continue
		}
		// The snapshot is of an earlier head. It is valid unless an entry between has
		// touched the scope.
		u.s.watcher.read()
		if !u.s.snapshots.holds(a.scope, a.snapshot) {
			return u.lookOnce(met, false)
		}
	}
	return found
}

func (u *subscriber) lookOnce(met []projections.Gain, shared bool) (found visibility) {
	u.s.store.View(func(state *projections.State, head log.Cursor) {
		found.head = head
		found.interest = state.Interest(u.hello.CN)
		if !u.lookDue {
			for _, scope := range found.interest {
				if u.held.has(scope) {
					continue
				}
				a := visibleScope{scope: scope}
				if shared {
					a.snapshot = u.s.snapshots.find(scope, state.Digest(scope))
				}
				if a.snapshot == nil || !a.snapshot.done {
					a.records = slices.Collect(state.InScope(scope))
				}
				found.added = append(found.added, a)
			}
		}
		for _, pair := range met {
			if !state.Interested(u.hello.CN, []log.Scope{pair.Scope}) {
				// The CN has left since, so it may not see which CNs are there now.
				found.lapsed = true
				continue
			}
			for rec := range state.UnderlayNICs(pair.CN) {
				if slices.Contains(state.ScopesOf(log.KindNIC, rec.Object.ID()), pair.Scope) {
					found.met = append(found.met, visibleObject{pair, rec})
				}
			}
		}
	})
	return found
}

// show sends the result of a look: objects that became visible, new scopes, drops.
func (u *subscriber) show(found visibility) error {
	u.silentUntil = max(u.silentUntil, found.head.Seq)
	for _, o := range found.met {
		if !u.held.has(o.pair.Scope) {
			continue // it comes with the scope, if the scope is sent
		}
		if err := u.sendObject(o.pair.Scope, o.record, found.head.Seq); err != nil {
			return err
		}
		if u.met == nil {
			u.met = make(map[projections.Gain]log.Seq)
		}
		u.met[o.pair] = found.head.Seq
	}
	if found.interest == nil {
		return nil
	}
	if err := u.sendAdded(found); err != nil {
		return err
	}
	return u.dropUnwanted(found.interest, found.head.Seq)
}

// forgetScope forgets which CNs the subscriber met on a scope.
func (u *subscriber) forgetScope(scope log.Scope) {
	for pair := range u.met {
		if pair.Scope == scope {
			delete(u.met, pair)
		}
	}
}

// dropUnwanted drops the scopes that are not in the interest of the head.
func (u *subscriber) dropUnwanted(interest []log.Scope, head log.Seq) error {
	var dropped []log.Scope
	for scope := range u.held.asOf {
		if _, wanted := slices.BinarySearchFunc(interest, scope, log.Scope.Compare); !wanted {
			dropped = append(dropped, scope)
		}
	}
	slices.SortFunc(dropped, log.Scope.Compare)
	for _, scope := range dropped {
		if err := u.drop(scope, head); err != nil {
			return err
		}
	}
	return nil
}

// drop drops a held scope; head is the head of the look that found it unwanted.
func (u *subscriber) drop(scope log.Scope, head log.Seq) error {
	u.held.release(scope)
	u.forgetScope(scope)
	u.silentUntil = max(u.silentUntil, head)
	return u.send(&feed.ScopeDropped{Scope: scope, At: u.at.Seq})
}

// sendAdded sends the new scopes. If too many streams are sending scopes, it tells the
// subscriber to retry later.
func (u *subscriber) sendAdded(found visibility) error {
	if len(found.added) == 0 {
		return nil
	}
	defer u.s.sending.Add(-1)
	if n := u.s.sending.Add(1); n > MaxSnapshots {
		u.s.metrics.snapshotsRefused.Inc()
		text := fmt.Sprintf("%d streams are being sent whole scopes, the most at once: try again, or another server", MaxSnapshots)
		return errors.Join(errDrained, u.drain(feed.DrainBusy, text))
	}
	for _, a := range found.added {
		u.adding = a.scope
		err := u.sendScope(a, found.head)
		u.adding = log.Scope{}
		if err != nil {
			return err
		}
	}
	return nil
}

// sendScope sends a whole scope; from then on it is held.
func (u *subscriber) sendScope(a visibleScope, head log.Cursor) error {
	count := uint32(len(a.records))
	shared := a.snapshot != nil && a.snapshot.done
	if shared {
		count = a.snapshot.count
	}
	if err := u.send(&feed.ScopeBegin{Scope: a.scope, AsOf: head.Seq, Count: count}); err != nil {
		return err
	}
	var err error
	if shared {
		err = u.sendShared(a.snapshot, head.Seq)
	} else {
		err = u.sendObjects(a, head.Seq)
	}
	if err != nil {
		return err
	}
	if err := u.send(&feed.ScopeEnd{Scope: a.scope, AsOf: head.Seq, Chain: head.Chain, Count: count}); err != nil {
		return err
	}
	u.s.metrics.scopesSent.Inc()
	u.forgetScope(a.scope)
	u.held.hold(a.scope, head.Seq)
	return nil
}

// sendShared sends objects that were encoded for another subscriber.
func (u *subscriber) sendShared(s *snapshot, at log.Seq) error {
	u.s.metrics.scopesShared.Inc()
	for frames := s.frames; len(frames) > 0; {
		u.out.open()
		var err error
		if u.out.buf, frames, err = feed.Move(u.out.buf, frames, at); err != nil {
			return err
		}
		if err := u.out.room(0); err != nil {
			return err
		}
	}
	return nil
}

// sendObjects sends the objects of a scope, and keeps the encoded form for other
// subscribers.
func (u *subscriber) sendObjects(a visibleScope, at log.Seq) error {
	var frames []byte
	for _, rec := range a.records {
		u.out.open()
		start := len(u.out.buf)
		m, err := objectFrame(a.scope, rec, at)
		if err != nil {
			return err
		}
		if !u.maySend(u.own(m)) {
			return u.withhold(m)
		}
		if u.out.buf, err = feed.Append(u.out.buf, m); err != nil {
			return err
		}
		if a.snapshot != nil && len(frames) <= maxSnapshotBytes {
			frames = append(frames, u.out.buf[start:]...)
		}
		if err := u.out.room(0); err != nil {
			return err
		}
	}
	if a.snapshot != nil {
		u.s.snapshots.put(a.scope, a.snapshot, uint32(len(a.records)), frames)
	}
	return nil
}

func (u *subscriber) sendObject(scope log.Scope, rec projections.Record, at log.Seq) error {
	m, err := objectFrame(scope, rec, at)
	if err != nil {
		return err
	}
	return u.send(m)
}

func objectFrame(scope log.Scope, rec projections.Record, at log.Seq) (*feed.Object, error) {
	encoder := encoders.Get().(*log.Encoder)
	b, err := encoder.Object(rec.Object)
	encoders.Put(encoder)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", rec.Object.Kind(), rec.Object.ID(), err)
	}
	return &feed.Object{
		At: at, Scope: scope, Kind: rec.Object.Kind(), ID: rec.Object.ID(), Revision: rec.Revision, Seq: rec.Seq, Bytes: b,
	}, nil
}

// resend sends the scopes that were asked for again as if they were new. It leaves out
// scopes that are not held, or not yet: they will be sent, or are not wanted.
func (u *subscriber) resend() error {
	u.askedMu.Lock()
	asked := u.asked
	u.asked = nil
	u.askedMu.Unlock()
	if u.lookDue {
		return nil // the agent asks again, at a bookmark after the start
	}
	for scope := range asked {
		if u.held.has(scope) {
			u.held.release(scope)
			u.session.countRepaired()
		}
	}
	u.repeatBookmark, u.digestsAt = true, time.Time{} // so that the agent compares them again
	if err := u.conclude(nil); err != nil {
		return err
	}
	return u.advance() // to the bookmark
}
