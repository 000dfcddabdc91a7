package api

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// sight is what a look at the state found, all of one head. The records are
// shared with the state; nobody changes them.
type sight struct {
	head     log.Cursor
	interest []log.Scope // nil: not to be compared with what is held
	added    []scopeSight
	met      []objectSight
	// lapsed: a scope that is held is no longer wanted at the head. It must go now:
	// kept until the CN wants it again, it would lack whom it did not meet.
	lapsed bool
}

type scopeSight struct {
	scope   log.Scope
	records []projections.Record // none if the image is done
	image   *image               // to be sent, or to be made; nil: neither
}

type objectSight struct {
	pair   projections.Gain
	record projections.Record
}

// look takes from the state what the CN wants and does not hold, and the
// underlay NICs of the CNs that came into sight.
func (u *subscriber) look(met []projections.Gain) sight {
	found := u.lookOnce(met, true)
	for _, a := range found.added {
		if a.image == nil || !a.image.done {
			continue
		}
		// The image is of an earlier head, unless an entry between has touched it.
		u.s.crew.look()
		if !u.s.images.holds(a.scope, a.image) {
			return u.lookOnce(met, false)
		}
	}
	return found
}

func (u *subscriber) lookOnce(met []projections.Gain, images bool) (found sight) {
	u.s.store.View(func(state *projections.State, head log.Cursor) {
		found.head = head
		found.interest = state.Interest(u.hello.CN)
		if !u.due {
			for _, scope := range found.interest {
				if _, held := u.held[scope]; held {
					continue
				}
				a := scopeSight{scope: scope}
				if images {
					a.image = u.s.images.find(scope, state.Digest(scope))
				}
				if a.image == nil || !a.image.done {
					a.records = slices.Collect(state.InScope(scope))
				}
				found.added = append(found.added, a)
			}
		}
		for _, pair := range met {
			if !state.Interested(u.hello.CN, []log.Scope{pair.Scope}) {
				// The CN has left since, and who is there now is not its business.
				found.lapsed = true
				continue
			}
			for rec := range state.UnderlayNICs(pair.CN) {
				if slices.Contains(state.ScopesOf(log.KindNIC, rec.Object.ID()), pair.Scope) {
					found.met = append(found.met, objectSight{pair, rec})
				}
			}
		}
	})
	return found
}

// show sends what a look found: objects that came into sight, new scopes, drops.
func (u *subscriber) show(found sight) error {
	u.silent = max(u.silent, found.head.Seq)
	for _, o := range found.met {
		if _, held := u.held[o.pair.Scope]; !held {
			continue // it comes with the scope, if that comes
		}
		if err := u.object(o.pair.Scope, o.record, found.head.Seq); err != nil {
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
	if err := u.add(found); err != nil {
		return err
	}
	return u.drop(found.interest, found.head.Seq)
}

// forgetScope forgets whom the subscriber met on a scope.
func (u *subscriber) forgetScope(scope log.Scope) {
	for pair := range u.met {
		if pair.Scope == scope {
			delete(u.met, pair)
		}
	}
}

// add sends the new scopes, unless too many streams are doing that: then the
// subscriber is to come again.
func (u *subscriber) add(found sight) error {
	if len(found.added) == 0 {
		return nil
	}
	defer u.s.snapshots.Add(-1)
	if n := u.s.snapshots.Add(1); n > MaxSnapshots {
		u.s.metrics.snapshotsRefused.Inc()
		text := fmt.Sprintf("%d streams are being sent whole scopes, the most at once: try again, or another server", MaxSnapshots)
		return errors.Join(errDrained, u.drain(feed.DrainBusy, text))
	}
	for _, a := range found.added {
		u.adding = a.scope
		err := u.scope(a, found.head)
		u.adding = log.Scope{}
		if err != nil {
			return err
		}
	}
	return nil
}

// scope sends a whole scope; from then on it is held.
func (u *subscriber) scope(a scopeSight, head log.Cursor) error {
	count := uint32(len(a.records))
	shared := a.image != nil && a.image.done
	if shared {
		count = a.image.count
	}
	if err := u.send(&feed.ScopeBegin{Scope: a.scope, AsOf: head.Seq, Count: count}); err != nil {
		return err
	}
	var err error
	if shared {
		err = u.imaged(a.image, head.Seq)
	} else {
		err = u.objects(a, head.Seq)
	}
	if err != nil {
		return err
	}
	if err := u.send(&feed.ScopeEnd{Scope: a.scope, AsOf: head.Seq, Chain: head.Chain, Count: count}); err != nil {
		return err
	}
	u.s.metrics.scopesSent.Inc()
	u.forgetScope(a.scope)
	u.hold(a.scope, head.Seq)
	return nil
}

// imaged sends objects that were encoded for another subscriber.
func (u *subscriber) imaged(img *image, at log.Seq) error {
	u.s.metrics.scopesShared.Inc()
	for frames := img.frames; len(frames) > 0; {
		u.open()
		var err error
		if u.buf, frames, err = feed.Move(u.buf, frames, at); err != nil {
			return err
		}
		if err := u.room(0); err != nil {
			return err
		}
	}
	return nil
}

// objects sends the objects of a scope, and keeps what it sends for others.
func (u *subscriber) objects(a scopeSight, at log.Seq) error {
	var frames []byte
	for _, rec := range a.records {
		u.open()
		start := len(u.buf)
		m, err := objectFrame(a.scope, rec, at)
		if err != nil {
			return err
		}
		if !u.leaves(u.own(m)) {
			return u.withhold(m)
		}
		if u.buf, err = feed.Append(u.buf, m); err != nil {
			return err
		}
		if a.image != nil && len(frames) <= maxImageBytes {
			frames = append(frames, u.buf[start:]...)
		}
		if err := u.room(0); err != nil {
			return err
		}
	}
	if a.image != nil {
		u.s.images.put(a.scope, a.image, uint32(len(a.records)), frames)
	}
	return nil
}

func (u *subscriber) object(scope log.Scope, rec projections.Record, at log.Seq) error {
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

// bookmark tells the place, unless it was told or must not be (see silent).
func (u *subscriber) bookmark() error {
	if u.place == u.marked && !u.repeat || u.place < u.silent {
		return nil
	}
	m := &feed.Bookmark{Seq: u.place, Chain: u.chain}
	if u.repeat || u.now.Sub(u.digests) >= digestEvery {
		m.Digests = u.sums()
	}
	u.marked, u.markedAt, u.repeat = u.place, u.now, false
	u.session.setSent(u.place, u.chain)
	return u.send(m)
}

// digestEvery is the least time between two bookmarks with digests, but for the
// quiet ones.
const digestEvery = time.Second

// sums returns the digests of the scopes that are held, or nil if the state is
// not at the place right now: then a later bookmark has them.
func (u *subscriber) sums() (sums []feed.ScopeDigest) {
	u.s.store.View(func(state *projections.State, head log.Cursor) {
		if u.due || head.Seq != u.place || head.Cluster != u.cluster {
			return
		}
		sums = make([]feed.ScopeDigest, 0, len(u.held))
		for scope := range u.held {
			sums = append(sums, feed.ScopeDigest{Scope: scope, Digest: state.Digest(scope)})
		}
	})
	if sums != nil {
		u.digests = u.now
		slices.SortFunc(sums, func(a, b feed.ScopeDigest) int { return a.Scope.Compare(b.Scope) })
	}
	return sums
}

// ask notes a scope that the subscriber wants anew. It is called by the reader.
func (u *subscriber) ask(m *feed.Again) {
	u.askedMu.Lock()
	if u.asked == nil {
		u.asked = make(map[log.Scope]struct{})
	}
	if len(u.asked) < feed.MaxScopes {
		u.asked[m.Scope] = struct{}{}
	}
	u.askedMu.Unlock()
	u.s.metrics.mismatches.Inc()
	u.s.logger.Error("a compute node holds something else than the log says: sent anew", "cn", u.hello.CN, "scope", m.Scope, "at", m.At)
	u.wake(wakeAsk)
}

// resend sends the scopes that were asked for as if they were new. What is not
// held, or not yet, is not: it will be sent, or is not wanted.
func (u *subscriber) resend() error {
	u.askedMu.Lock()
	asked := u.asked
	u.asked = nil
	u.askedMu.Unlock()
	if u.due {
		return nil // it will ask again, at a bookmark after the start
	}
	for scope := range asked {
		if _, held := u.held[scope]; held {
			u.unhold(scope)
			u.session.countAgain()
		}
	}
	u.repeat, u.digests = true, time.Time{} // was it mended?
	if err := u.conclude(nil); err != nil {
		return err
	}
	return u.advance() // to the bookmark
}
