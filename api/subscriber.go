package api

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// subscriber sends one CN its stream. Its place is all that it keeps of the
// log; what it cannot write yet, it has not read yet.
//
// The stream is a repetition of one round (SAFETY F5): entries from the place
// on, filtered by the scopes held; if they may have changed the CN's interest,
// the state is looked at, at a head h at or beyond them, and follows with
// objects that came into sight, new scopes as of h, and drops; then a bookmark.
//
// Invariant after a bookmark at place p: what was sent, folded, is the state of
// the scopes held at p, or newer where a scope's as-of or an object's own seq is
// beyond p (SAFETY F2). A scope that is no longer wanted gets no further entry;
// until it is dropped, no bookmark is sent, or a cursor would hide the gap.
type subscriber struct {
	s       *Server
	conn    net.Conn
	session *session
	hello   *feed.Hello
	pings   chan struct{} // holds a token while a ping waits for its answer

	// The rest is touched only by the goroutine in run.
	cluster log.UUID // of the welcome
	place   log.Seq
	chain   log.ChainPrefix       // at place, for bookmarks
	held    map[log.Scope]log.Seq // scopes that the CN holds and wants, with their as-of
	gone    map[log.Scope]bool    // scopes that it holds and does not want
	// pinned is the head at the start. Until the place is there the interest of
	// then cannot be known; reaching it, unless due is false, is one more look.
	pinned log.Seq
	due    bool
	// met are the pairs of CN and vnet whose underlay NICs were sent on this
	// stream since the CN's NICs on the vnet were last seen to leave.
	met     map[projections.Gain]bool
	encoder *log.Encoder
	buf     []byte
	marked  log.Seq   // of the last bookmark
	repeat  bool      // tell the place again
	wrote   time.Time // when the last frame was written
}

func newSubscriber(s *Server, conn net.Conn, hello *feed.Hello) *subscriber {
	return &subscriber{
		s: s, conn: conn, hello: hello, pings: make(chan struct{}, 1),
		session: &session{
			cn: hello.CN, incarnation: hello.Incarnation, number: hello.Session,
			remote: conn.RemoteAddr().String(), since: time.Now(), replaced: make(chan struct{}),
		},
		held: make(map[log.Scope]log.Seq), gone: make(map[log.Scope]bool), met: make(map[projections.Gain]bool),
		encoder: log.NewEncoder(), repeat: true,
	}
}

// run sends the stream until it ends. The error says why; nil after a drain.
func (u *subscriber) run(ctx context.Context) error {
	if err := u.start(ctx); err != nil {
		return err
	}
	quiet := time.NewTicker(feedQuiet)
	defer quiet.Stop()
	for {
		changed := u.s.store.Changed()
		if err := u.advance(ctx); err != nil {
			// If it is the connection that failed, this fails as well.
			_ = u.drain(feed.DrainFailed, err.Error())
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-u.s.draining:
			return u.drain(feed.DrainShutdown, "this server stops: go to another")
		case <-u.session.replaced:
			return u.drain(feed.DrainReplaced, "a newer session of this CN is here")
		case <-changed:
		case <-u.pings:
			if err := u.send(&feed.Pong{Head: u.s.store.Head().Seq}); err != nil {
				return err
			}
		case <-quiet.C:
			if time.Since(u.wrote) >= feedQuiet {
				u.repeat = true // so that both sides know that they are there
			}
		}
		if err := u.flush(); err != nil {
			return err
		}
	}
}

// ended reports why the stream must end, between two rounds.
func (u *subscriber) ended(ctx context.Context) bool {
	select {
	case <-ctx.Done():
	case <-u.s.draining:
	case <-u.session.replaced:
	default:
		return false
	}
	return true
}

// start welcomes the subscriber, judges its cursor and pins the head.
func (u *subscriber) start(ctx context.Context) error {
	head := u.s.store.Head()
	u.cluster = head.Cluster
	if err := u.send(&feed.Welcome{Version: feed.Version, Head: head}); err != nil {
		return err
	}
	if err := u.flush(); err != nil {
		return err
	}
	cursor := u.hello.Cursor
	for _, scope := range u.hello.Scopes {
		u.held[scope.Scope] = scope.AsOf
	}
	if cursor == (log.Cursor{}) {
		if len(u.held) > 0 {
			return u.reset(feed.ResetOtherLog, "scopes are held, but the cursor is of no log")
		}
		return u.renew() // who has nothing needs no entries
	}
	err := u.judge(ctx, cursor)
	if reason, ok := resetReason(err); ok {
		return u.reset(reason, err.Error())
	}
	if err != nil {
		if drainErr := u.drain(feed.DrainBehind, "this server has not reached the cursor: go to another"); drainErr != nil {
			return drainErr
		}
		return fmt.Errorf("hello at seq %d: %w", cursor.Seq, err)
	}
	u.place, u.chain, u.due = cursor.Seq, cursor.Chain, true
	u.s.store.View(func(state *projections.State, head log.Cursor) {
		u.pinned = head.Seq
		u.sortHeld(state.Interest(u.hello.CN))
	})
	if len(u.held) == 0 {
		return u.renew()
	}
	return nil
}

// judge checks the cursor, after it waited until this server is at the cursor
// and at each as-of. What is beyond the leader's head is of no log (SAFETY P4).
func (u *subscriber) judge(ctx context.Context, cursor log.Cursor) error {
	need := cursor.Seq
	for _, asOf := range u.held {
		need = max(need, asOf)
	}
	if head := u.s.store.Head(); head.Cluster == cursor.Cluster && head.Seq < need {
		ctx, cancel := context.WithTimeout(ctx, waitTime)
		defer cancel()
		if _, err := u.s.store.Consistent(ctx); err != nil {
			return err
		}
		if u.s.store.Head().Seq < need {
			return fmt.Errorf("seq %d, which this log has not reached: %w", need, log.ErrAhead)
		}
	}
	return u.s.store.CheckCursor(cursor)
}

// sortHeld moves scopes that are no longer wanted from held to gone.
func (u *subscriber) sortHeld(interest []log.Scope) {
	for scope := range u.held {
		if _, wanted := slices.BinarySearchFunc(interest, scope, log.Scope.Compare); !wanted {
			delete(u.held, scope)
			u.gone[scope] = true
		}
	}
}

// reset tells the subscriber that its cursor is of no use, and sends all anew.
func (u *subscriber) reset(reason feed.ResetReason, text string) error {
	u.s.metrics.resets.WithLabelValues(reason.String()).Inc()
	u.s.logger.Warn("feed reset", "cn", u.hello.CN.String(), "reason", reason.String(), "text", text)
	if err := u.send(&feed.Reset{Head: u.s.store.Head().Seq, Reason: reason, Text: text}); err != nil {
		return err
	}
	for scope := range u.held {
		u.gone[scope] = true
	}
	clear(u.held)
	return u.renew()
}

// renew sends every scope of the CN's interest as of the head, from which the
// stream goes on. Nothing is held.
func (u *subscriber) renew() error {
	clear(u.met)
	u.due = false
	found := u.look(nil)
	u.place, u.chain = found.head.Seq, found.head.Chain
	if err := u.show(found); err != nil {
		return err
	}
	return u.bookmark()
}

// advance sends what the log has beyond the place, and a bookmark at the end.
func (u *subscriber) advance(ctx context.Context) error {
	for !u.ended(ctx) {
		head := u.s.store.Head()
		if head.Cluster != u.cluster || head.Seq < u.place {
			return fmt.Errorf("the log of this server was replaced: %w", log.ErrOtherLog)
		}
		if head.Seq == u.place {
			break
		}
		items, err := u.s.tail.after(u.place)
		if reason, ok := resetReason(err); ok {
			if err := u.reset(reason, err.Error()); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("read the log after %d: %w", u.place, err)
		}
		if len(items) == 0 {
			break
		}
		if err := u.round(items); err != nil {
			return err
		}
	}
	if u.due && u.place >= u.pinned { // the cursor was at the head
		if err := u.conclude(nil); err != nil {
			return err
		}
	}
	return u.bookmark()
}

// conclude looks at the state and sends what that shows; the start is then over.
func (u *subscriber) conclude(met []projections.Gain) error {
	u.due = false
	return u.show(u.look(met))
}

// round sends items, and what follows from them.
func (u *subscriber) round(items []*item) error {
	var met []projections.Gain
	moved := false
	for _, it := range items {
		if u.concerns(it) {
			if err := u.room(len(it.frame)); err != nil {
				return err
			}
			u.buf = append(u.buf, it.frame...)
			u.s.metrics.entriesSent.Inc()
		}
		met = u.meet(it, met)
		moved = moved || u.moves(it)
		u.place, u.chain = it.entry.Seq, it.entry.Hash.Prefix()
	}
	var err error
	switch {
	case u.due && u.place < u.pinned:
		// Objects only: scopes are compared when the pinned head is reached.
		if len(met) > 0 {
			found := u.look(met)
			found.interest = nil
			err = u.show(found)
		}
	case u.due, moved, len(met) > 0:
		err = u.conclude(met)
	}
	if err != nil {
		return err
	}
	if time.Since(u.wrote) > feedQuiet { // nothing of a long way concerned this CN
		if err := u.send(&feed.Pong{Head: u.place}); err != nil {
			return err
		}
		if err := u.flush(); err != nil {
			return err
		}
	}
	return u.bookmark()
}

// concerns reports whether the entry belongs to a scope that is held, and is
// not yet part of it.
func (u *subscriber) concerns(it *item) bool {
	return slices.ContainsFunc(it.event.Scopes, func(scope log.Scope) bool {
		asOf, ok := u.held[scope]
		return ok && asOf < it.entry.Seq
	})
}

// moves reports whether the entry may change the CN's interest, which follows
// from its NICs and from what their networks are.
func (u *subscriber) moves(it *item) bool {
	switch it.event.Kind {
	case log.KindNIC:
		return slices.Contains(it.event.Scopes, log.CNScope(u.hello.CN))
	case log.KindNetwork:
		return u.concerns(it)
	}
	return false
}

// meet notes the CNs that an entry may have brought onto a vnet that is held:
// their underlay NICs came into sight without an event (SAFETY F1).
func (u *subscriber) meet(it *item, met []projections.Gain) []projections.Gain {
	if it.event.Kind != log.KindNIC || !placed(it.event) {
		return met
	}
	for _, scope := range it.event.Scopes {
		if _, held := u.held[scope]; scope.Type != log.ScopeVNet || !held {
			continue
		}
		for _, other := range it.event.Scopes {
			if other.Type != log.ScopeCN || other.ID == u.hello.CN {
				continue
			}
			pair := projections.Gain{CN: other.ID, Scope: scope}
			if it.event.Action != log.Create {
				delete(u.met, pair) // it may have left, and have been forgotten there
			}
			if it.event.Action != log.Delete && !u.met[pair] {
				u.met[pair] = true
				met = append(met, pair)
			}
		}
	}
	return met
}

// placed reports whether an event of a NIC may have changed which CN and
// network it is on.
func placed(event *log.Event) bool {
	return event.Action != log.Update || slices.ContainsFunc(event.Changed, func(c log.FieldChange) bool {
		switch c.Path {
		case "cn_uuid", "network_uuid", "belongs_to_uuid", "belongs_to_type", "underlay":
			return true
		}
		return false
	})
}
