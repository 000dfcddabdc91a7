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

// visibility is what a CN may see that was not sent to it yet, as a look at the state
// found it, all of one head. The records are shared with the state and never changed.
type visibility struct {
	head     log.Cursor
	interest []log.Scope // nil: not to be compared with what is held
	added    []visibleScope
	met      []visibleObject
	// lapsed: a scope that is held is no longer wanted at the head. It must go now:
	// kept until the CN wants it again, it would lack whom it did not meet.
	lapsed bool
}

type visibleScope struct {
	scope    log.Scope
	records  []projections.Record // none if the snapshot is done
	snapshot *snapshot            // to be sent, or to be made; nil: neither
}

type visibleObject struct {
	pair   projections.Gain
	record projections.Record
}

// look takes from the state what the CN wants and does not hold, and the
// underlay NICs of the CNs that became visible.
func (u *subscriber) look(met []projections.Gain) visibility {
	found := u.lookOnce(met, true)
	for _, a := range found.added {
		if a.snapshot == nil || !a.snapshot.done {
			continue
		}
		// The snapshot is of an earlier head, unless an entry between has touched it.
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
				// The CN has left since, and which CNs are there now is not its business.
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

// show sends what a look found: objects that became visible, new scopes, drops.
func (u *subscriber) show(found visibility) error {
	u.silentUntil = max(u.silentUntil, found.head.Seq)
	for _, o := range found.met {
		if !u.held.has(o.pair.Scope) {
			continue // it comes with the scope, if that comes
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

// forgetScope forgets whom the subscriber met on a scope.
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

// drop drops a scope that is held; head is that of the look that said so.
func (u *subscriber) drop(scope log.Scope, head log.Seq) error {
	u.held.release(scope)
	u.forgetScope(scope)
	u.silentUntil = max(u.silentUntil, head)
	return u.send(&feed.ScopeDropped{Scope: scope, At: u.at.Seq})
}

// sendAdded sends the new scopes, unless too many streams are doing that: then the
// subscriber is to come again.
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

// sendObjects sends the objects of a scope, and keeps what it sends for others.
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

// resend sends the scopes that were asked for as if they were new. What is not
// held, or not yet, is not: it will be sent, or is not wanted.
func (u *subscriber) resend() error {
	u.askedMu.Lock()
	asked := u.asked
	u.asked = nil
	u.askedMu.Unlock()
	if u.lookDue {
		return nil // it will ask again, at a bookmark after the start
	}
	for scope := range asked {
		if u.held.has(scope) {
			u.held.release(scope)
			u.session.countRepaired()
		}
	}
	u.repeatBookmark, u.digestsAt = true, time.Time{} // was it mended?
	if err := u.conclude(nil); err != nil {
		return err
	}
	return u.advance() // to the bookmark
}
