package api

import (
	"fmt"
	"slices"
	"sync"
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
		if u.met == nil {
			u.met = make(map[projections.Gain]log.Seq)
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
	encoder := encoders.Get().(*log.Encoder)
	b, err := encoder.Object(rec.Object)
	encoders.Put(encoder)
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
	m := &feed.Bookmark{Seq: u.place, Chain: u.chain}
	if u.repeat || time.Since(u.digests) >= digestEvery {
		m.Digests = u.sums()
	}
	u.marked, u.repeat = u.place, false
	u.session.setSent(u.place)
	if err := u.send(m); err != nil {
		return err
	}
	return u.flush()
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
		u.digests = time.Now()
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
	select {
	case u.asks <- struct{}{}:
	default:
	}
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
			delete(u.held, scope)
			u.session.countAgain()
		}
	}
	u.repeat = true                         // with digests: was it mended?
	u.repeat, u.digests = true, time.Time{} // was it mended?
	return u.conclude(nil)
}

// buffers are those of subscribers that write; an idle one has none.
var (
	buffers  = sync.Pool{New: func() any { return new([]byte) }}
	encoders = sync.Pool{New: func() any { return log.NewEncoder() }}
)

// send appends a frame to what is to be written.
func (u *subscriber) send(m feed.Message) error {
	u.open()
	b, err := feed.Append(u.buf, m)
	if err != nil {
		return err
	}
	u.buf = b
	return u.room(0)
}

// open has a buffer there to append to.
func (u *subscriber) open() {
	if u.buf == nil {
		u.buf = (*buffers.Get().(*[]byte))[:0]
	}
	if u.buf == nil {
		u.buf = make([]byte, 0, 4<<10)
	}
}

// release gives the buffer back, for whoever writes next.
func (u *subscriber) release() {
	b := u.buf
	u.buf = nil
	if cap(b) <= 2*feedBuffer {
		buffers.Put(&b)
	}
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
	u.release()
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
