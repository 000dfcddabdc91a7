package api

import (
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
}

type scopeSight struct {
	scope   log.Scope
	records []projections.Record
}

type objectSight struct {
	pair   projections.Gain
	record projections.Record
}

// look takes from the state what the CN wants and does not hold, and the
// underlay NICs of the CNs that came into sight.
func (u *subscriber) look(met []projections.Gain) (found sight) {
	u.s.store.View(func(state *projections.State, head log.Cursor) {
		found.head = head
		found.interest = state.Interest(u.hello.CN)
		if !u.due {
			for _, scope := range found.interest {
				if _, held := u.held[scope]; !held {
					found.added = append(found.added, scopeSight{scope, slices.Collect(state.InScope(scope))})
				}
			}
		}
		for _, pair := range met {
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
		if err := u.object(o.pair.Scope, o.record, found.head.Seq); err != nil {
			return err
		}
		u.met[o.pair] = found.head.Seq
	}
	if found.interest == nil {
		return nil
	}
	for _, a := range found.added {
		if err := u.scope(a, found.head); err != nil {
			return err
		}
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

// scope sends a whole scope; from then on it is held.
func (u *subscriber) scope(a scopeSight, head log.Cursor) error {
	count := uint32(len(a.records))
	if err := u.send(&feed.ScopeBegin{Scope: a.scope, AsOf: head.Seq, Count: count}); err != nil {
		return err
	}
	for _, rec := range a.records {
		if err := u.object(a.scope, rec, head.Seq); err != nil {
			return err
		}
	}
	if err := u.send(&feed.ScopeEnd{Scope: a.scope, AsOf: head.Seq, Chain: head.Chain, Count: count}); err != nil {
		return err
	}
	u.s.metrics.scopesSent.Inc()
	u.forgetScope(a.scope)
	u.held[a.scope] = head.Seq
	return nil
}

func (u *subscriber) object(scope log.Scope, rec projections.Record, at log.Seq) error {
	b, err := u.encoder.Object(rec.Object)
	if err != nil {
		return fmt.Errorf("%s %s: %w", rec.Object.Kind(), rec.Object.ID(), err)
	}
	return u.send(&feed.Object{
		At: at, Scope: scope, Kind: rec.Object.Kind(), ID: rec.Object.ID(), Revision: rec.Revision, Seq: rec.Seq, Bytes: b,
	})
}

// bookmark tells the place, unless it was told or must not be (see silent).
// What was gathered goes out.
func (u *subscriber) bookmark() error {
	if u.place == u.marked && !u.repeat || u.place < u.silent {
		return nil
	}
	u.marked, u.repeat = u.place, false
	u.session.setSent(u.place)
	if err := u.send(&feed.Bookmark{Seq: u.place, Chain: u.chain}); err != nil {
		return err
	}
	return u.flush()
}

// send appends a frame to what is to be written.
func (u *subscriber) send(m feed.Message) error {
	b, err := feed.Append(u.buf, m)
	if err != nil {
		return err
	}
	u.buf = b
	return u.room(0)
}

// room writes what was gathered if n more bytes would make it too much.
func (u *subscriber) room(n int) error {
	if len(u.buf)+n < feedBuffer {
		return nil
	}
	return u.flush()
}

// flush writes what was gathered. A subscriber that takes nothing for feedWrite
// is given up; it costs its socket's buffer and this one.
func (u *subscriber) flush() error {
	if len(u.buf) == 0 {
		return nil
	}
	u.wrote = time.Now()
	if err := u.conn.SetWriteDeadline(u.wrote.Add(feedWrite)); err != nil {
		return err
	}
	n, err := u.conn.Write(u.buf)
	u.s.metrics.bytesSent.Add(float64(n))
	u.buf = u.buf[:0]
	if err != nil {
		return fmt.Errorf("to the subscriber: %w", err)
	}
	return nil
}

// drain sends the last frame.
func (u *subscriber) drain(reason feed.DrainReason, text string) error {
	if err := u.send(&feed.Drain{At: u.place, Reason: reason, Text: text}); err != nil {
		return err
	}
	return u.flush()
}
