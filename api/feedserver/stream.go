package feedserver

import (
	"fmt"
	"slices"
	"time"

	"rutter/api/internal/logread"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// advance sends the entries beyond the position, and a bookmark at the end. It stops
// earlier if the run takes long.
func (u *subscriber) advance() error {
	u.unfinished = false
	for rounds := 0; u.task.reasons()&mustEnd == 0; rounds++ {
		head := u.s.store.Head()
		if head.Cluster != u.at.Cluster || head.Seq < u.at.Seq || head.Seq == u.at.Seq && head.Chain != u.at.Chain {
			return fmt.Errorf("the log of this server was replaced: %w", log.ErrOtherLog)
		}
		if head.Seq == u.at.Seq {
			break
		}
		if u.skip() {
			continue
		}
		if rounds > 0 && time.Since(u.now) > runTime {
			u.unfinished = true // the next run continues
			return nil
		}
		entries, err := u.s.tail.After(u.at.Seq)
		// After the read, so that the log was not replaced between.
		at := logread.Position{Cursor: u.at, Known: true}
		if other := at.Check(u.s.store); other != nil {
			return fmt.Errorf("the log of this server was replaced: %w", other)
		}
		if reason, ok := resetReason(err); ok {
			if err := u.reset(reason, err.Error()); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("read the log after %d: %w", u.at.Seq, err)
		}
		if len(entries) == 0 {
			break
		}
		if err := u.round(entries); err != nil {
			return err
		}
	}
	if u.lookDue && u.at.Seq >= u.pinned { // the cursor was at the head
		if err := u.conclude(nil); err != nil {
			return err
		}
	}
	return u.bookmark()
}

// round sends entries, and their consequences.
func (u *subscriber) round(entries []*logread.Decoded) error {
	var met []projections.Gain
	var left []log.Scope
	moved, sent := false, 0
	for i, e := range entries {
		if moved && !u.lookDue && entries[i-1].Head.More == 0 {
			break // later entries are filtered by the new interest
		}
		if own := u.held.concerns(e); own {
			if !u.maySend(feed.TypeEntry, own) {
				return u.withhold(e)
			}
			frame, err := e.Frame()
			if err != nil {
				return err
			}
			if err := u.out.room(len(frame)); err != nil {
				return err
			}
			u.out.open()
			u.out.buf = append(u.out.buf, frame...)
			sent++
		}
		met = u.meet(e, met)
		if u.moves(e) {
			moved, left = true, scopesLeft(e, left)
		}
		u.at.Seq, u.at.Chain = e.Seq, e.Hash.Prefix()
	}
	u.s.metrics.entriesSent.Add(float64(sent))
	var err error
	switch {
	case u.lookDue && u.at.Seq < u.pinned:
		// Objects only: the interest is compared when the pinned head is reached.
		if moved {
			u.silentUntil = max(u.silentUntil, u.pinned)
		}
		if len(met) > 0 {
			found := u.look(met)
			if !found.lapsed {
				found.interest = nil
			}
			err = u.show(found)
		}
	case u.lookDue, moved, len(met) > 0:
		err = u.conclude(met, left...)
	}
	if err != nil {
		return err
	}
	if u.now.Sub(u.out.wrote) > quietTime { // none of many entries concerned this CN
		if err := u.send(&feed.Pong{Head: u.at.Seq}); err != nil {
			return err
		}
		if err := u.out.flush(); err != nil {
			return err
		}
	}
	return u.bookmark()
}

// moves reports whether the entry may change the CN's interest, which follows from its
// NICs and from their networks.
func (u *subscriber) moves(e *logread.Decoded) bool {
	switch e.Head.Kind {
	case log.KindNIC:
		return slices.Contains(e.Head.Scopes, log.CNScope(u.hello.CN))
	case log.KindNetwork:
		return u.held.concerns(e)
	}
	return false
}

// meet records the CNs that an entry may have brought onto a held vnet: their underlay
// NICs became visible without an event (SAFETY F1).
func (u *subscriber) meet(e *logread.Decoded, met []projections.Gain) []projections.Gain {
	if e.Head.Kind != log.KindNIC || !movesNIC(e.Head) {
		return met
	}
	for _, scope := range e.Head.Scopes {
		if scope.Type != log.ScopeVNet || !u.held.has(scope) {
			continue
		}
		for _, other := range e.Head.Scopes {
			if other.Type != log.ScopeCN || other.ID == u.hello.CN {
				continue
			}
			pair := projections.Gain{CN: other.ID, Scope: scope}
			if e.Head.Action != log.Create {
				delete(u.met, pair) // it may have left, and the subscriber may have dropped it there
			}
			at, known := u.met[pair]
			known = known && at < e.Seq || slices.Contains(met, pair)
			if e.Head.Action != log.Delete && !known {
				met = append(met, pair)
			}
		}
	}
	return met
}

// movesNIC reports whether an event of a NIC may have changed its CN or network.
func movesNIC(event *log.Event) bool {
	return event.Action != log.Update || slices.ContainsFunc(event.Changed, func(c log.FieldChange) bool {
		switch c.Path {
		case "cn_uuid", "network_uuid", "belongs_to_uuid", "belongs_to_type", "underlay":
			return true
		}
		return false
	})
}

// scopesLeft appends the scopes that a CN's own NIC may have left with an event.
func scopesLeft(e *logread.Decoded, left []log.Scope) []log.Scope {
	if e.Head.Kind != log.KindNIC || e.Head.Action == log.Create {
		return left
	}
	for _, scope := range e.Head.Scopes {
		if (scope.Type == log.ScopeVNet || scope.Type == log.ScopeNetwork) && !slices.Contains(left, scope) {
			left = append(left, scope)
		}
	}
	return left
}

// maxReturn bounds the entries that are searched for a return. If there are more, a
// return is assumed.
const maxReturn = 4 * logread.ReadEntries

// returned reports whether, between the position and the head of a look, a NIC of the
// CN came to a scope that it may have left at the position. Then the state at the head
// does not show whether the CN was there all the time.
func (u *subscriber) returned(left []log.Scope, head log.Seq) bool {
	if head > u.at.Seq+maxReturn {
		return true
	}
	for at := u.at.Seq; at < head; {
		entries, err := u.s.tail.After(at)
		if err != nil || len(entries) == 0 {
			return true // entries that cannot be read may have one
		}
		for _, e := range entries {
			at = e.Seq
			mine := e.Head.Kind == log.KindNIC && slices.Contains(e.Head.Scopes, log.CNScope(u.hello.CN))
			if mine && slices.ContainsFunc(e.Head.Scopes, func(scope log.Scope) bool { return slices.Contains(left, scope) }) {
				return true
			}
		}
	}
	return false
}

// conclude looks at the state and sends the result; the start is then over. left are
// the scopes that a NIC of the CN may have left at the position.
func (u *subscriber) conclude(met []projections.Gain, left ...log.Scope) error {
	u.lookDue = false
	found := u.look(met)
	if len(left) > 0 && u.returned(left, found.head.Seq) {
		// Between left and return, the scope was outside the CN's interest. So all of
		// it is sent again, as of the head, without the entries between.
		for _, scope := range left {
			if !u.held.has(scope) {
				continue
			}
			if err := u.drop(scope, found.head.Seq); err != nil {
				return err
			}
		}
		found = u.look(met)
	}
	return u.show(found)
}

// bookmark sends a bookmark at the position, unless one was sent there or silentUntil
// forbids it.
func (u *subscriber) bookmark() error {
	if u.at.Seq == u.bookmarked && !u.repeatBookmark || u.at.Seq < u.silentUntil {
		return nil
	}
	m := &feed.Bookmark{Seq: u.at.Seq, Chain: u.at.Chain}
	if u.repeatBookmark || u.now.Sub(u.digestsAt) >= digestEvery {
		m.Digests = u.scopeDigests()
	}
	u.bookmarked, u.bookmarkedAt, u.repeatBookmark = u.at.Seq, u.now, false
	u.session.setSent(u.at.Seq, u.at.Chain)
	return u.send(m)
}

// digestEvery is the least time between two bookmarks with digests, except on quiet
// streams.
const digestEvery = time.Second

// scopeDigests returns the digests of the held scopes, or nil if the state is not at
// the position now: then a later bookmark has them.
func (u *subscriber) scopeDigests() (sums []feed.ScopeDigest) {
	u.s.store.View(func(state *projections.State, head log.Cursor) {
		if u.lookDue || head.Seq != u.at.Seq || head.Cluster != u.at.Cluster {
			return
		}
		sums = make([]feed.ScopeDigest, 0, len(u.held.asOf))
		for scope := range u.held.asOf {
			sums = append(sums, feed.ScopeDigest{Scope: scope, Digest: state.Digest(scope)})
		}
	})
	if sums != nil {
		u.digestsAt = u.now
		slices.SortFunc(sums, func(a, b feed.ScopeDigest) int { return a.Scope.Compare(b.Scope) })
	}
	return sums
}
