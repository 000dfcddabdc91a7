package api

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/backend"
	"rutter/api/vmm"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// subscriber sends one CN its stream. Its place is all that it keeps of the
// log; what it cannot write yet, it has not read yet.
//
// The stream is a repetition of one round: entries from the place on, filtered
// by the scopes held; after one that may have changed the CN's interest the
// state is looked at, at a head h at or beyond it, and follows with objects that
// came into sight, new scopes as of h, and drops. While catching up after the
// start no scope is added: that comes when the pinned head is reached (SAFETY F5).
//
// A scope is dropped where its entries end, at the start too, and not after the
// catching up: else an underlay NIC that is in a scope without entries would be
// kept for it, its deletion not be heard of, and it be believed again when its
// CN comes onto a vnet that is held.
//
// Invariant at a bookmark at place p: what was sent, folded, is the state at p of
// the CN's interest at p. So between a look and its head there is none: what the
// look found, or no longer found, is of the head.
type subscriber struct {
	s       *Server
	conn    net.Conn
	raw     syscall.RawConn // of conn, to write without waiting; nil if it has none
	session *session
	hello   *feed.Hello // its scopes are forgotten after the start
	who     matrix.Identity
	answers answers       // of the matrix, to who
	over    chan struct{} // closed after the last turn
	err     error         // why it ended, once over is closed; nil after a drain
	why     atomic.Uint32 // bits: see crew.go
	slot    int           // in the crew's members; protected by its lock
	wanted  atomic.Uint64 // the seq that somebody waits for
	// line takes the CN's answers, and what it tells of its VMs. Nil if nobody does.
	line     *vmm.Line
	askedMu  sync.Mutex // protects asked and requests
	asked    map[log.Scope]struct{}
	requests []*feed.Request // what other parts of the server ask the CN, at most maxRequests

	// The rest is touched only in its turn.
	adding  log.Scope // that is being sent, since the CN came to want it
	cluster log.UUID  // of the welcome
	place   log.Seq
	chain   log.ChainPrefix       // at place, for bookmarks
	held    map[log.Scope]log.Seq // scopes that the CN holds, with their as-of; changed by hold and unhold
	heldAll bool                  // the scope of all is among them
	recent  log.Scope             // of those held, that the last entry that was sent belongs to; zero: none
	silent  log.Seq               // no bookmark before this place
	// pinned is the head at the start. Until the place is there the interest of
	// then cannot be known; reaching it, unless due is false, is one more look.
	pinned log.Seq
	due    bool
	// met are the pairs of CN and vnet whose underlay NICs were sent on this
	// stream since the CN's NICs on the vnet were last seen to leave, with the
	// head at which: an entry up to there may be the one that brought the CN.
	met      map[projections.Gain]log.Seq
	buf      []byte    // nil while there is nothing in it
	pooled   *[]byte   // where buf came from
	now      time.Time // when the turn began
	late     bool      // the turn ended before the end of the log was reached
	behind   bool      // the turn is one of those that follow
	marked   log.Seq   // of the last bookmark
	markedAt time.Time // when that was sent
	repeat   bool      // tell the place again
	wrote    time.Time // when the last frame was written
	digests  time.Time // when the last digests were sent
}

func newSubscriber(s *Server, conn net.Conn, who matrix.Identity, hello *feed.Hello) *subscriber {
	u := &subscriber{
		s: s, conn: conn, hello: hello, who: who, answers: answersFor(who), over: make(chan struct{}),
		session: &session{
			cn: hello.CN, incarnation: hello.Incarnation, number: hello.Session,
			remote: conn.RemoteAddr().String(), since: time.Now(), told: told{hello: hello.Cursor},
		},
		held: make(map[log.Scope]log.Seq), repeat: true,
	}
	u.session.subscriber = u
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			u.raw = raw
		}
	}
	return u
}

// start welcomes the subscriber, judges its cursor and pins the head.
func (u *subscriber) start() error {
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
		u.hold(scope.Scope, scope.AsOf)
	}
	u.hello.Scopes = nil // they may be many, and the stream is long
	if cursor == (log.Cursor{}) {
		u.judged(false)
		if len(u.held) > 0 {
			return u.reset(feed.ResetOtherLog, "scopes are held, but the cursor is of no log")
		}
		return u.renew() // who has nothing needs no entries
	}
	var err error
	u.s.crew.blocking(u, func() { err = u.judge(u.s.ctx, cursor) })
	if reason, ok := resetReason(err); ok {
		u.judged(false)
		return u.reset(reason, err.Error())
	}
	if err != nil {
		if drainErr := u.drain(feed.DrainBehind, "this server has not reached the cursor: go to another"); drainErr != nil {
			return drainErr
		}
		return fmt.Errorf("hello at seq %d: %w", cursor.Seq, err)
	}
	u.judged(true)
	u.place, u.chain, u.due = cursor.Seq, cursor.Chain, true
	var interest []log.Scope
	u.s.store.View(func(state *projections.State, head log.Cursor) {
		u.pinned = head.Seq
		interest = state.Interest(u.hello.CN)
	})
	for _, asOf := range u.held {
		u.silent = max(u.silent, asOf)
	}
	interest = slices.DeleteFunc(interest, u.doubtful)
	if err := u.drop(interest, u.pinned); err != nil {
		return err
	}
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
		ctx, cancel := context.WithTimeout(ctx, backend.WaitTime)
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

// drop drops the scopes that are not in the interest of the head.
func (u *subscriber) drop(interest []log.Scope, head log.Seq) error {
	var dropped []log.Scope
	for scope := range u.held {
		if _, wanted := slices.BinarySearchFunc(interest, scope, log.Scope.Compare); !wanted {
			dropped = append(dropped, scope)
		}
	}
	slices.SortFunc(dropped, log.Scope.Compare)
	for _, scope := range dropped {
		if err := u.dropOne(scope, head); err != nil {
			return err
		}
	}
	return nil
}

// dropOne drops a scope that is held; head is that of the look that said so.
func (u *subscriber) dropOne(scope log.Scope, head log.Seq) error {
	u.unhold(scope)
	u.forgetScope(scope)
	u.silent = max(u.silent, head)
	return u.send(&feed.ScopeDropped{Scope: scope, At: u.place})
}

// reset tells the subscriber that its cursor is of no use, and sends all anew.
func (u *subscriber) reset(reason feed.ResetReason, text string) error {
	u.s.metrics.resets.WithLabelValues(reason.String()).Inc()
	u.s.logger.Warn("feed reset", "cn", u.hello.CN.String(), "reason", reason.String(), "text", text)
	u.session.setReset()
	if err := u.send(&feed.Reset{Head: u.s.store.Head().Seq, Reason: reason, Text: text}); err != nil {
		return err
	}
	return u.renew()
}

// renew sends every scope of the CN's interest as of the head, from which the
// stream goes on, and drops what else is held.
func (u *subscriber) renew() error {
	before := maps.Clone(u.held)
	u.unholdAll()
	u.due, u.silent = false, 0
	clear(u.met)
	found := u.look(nil)
	for scope, asOf := range before {
		if _, wanted := slices.BinarySearchFunc(found.interest, scope, log.Scope.Compare); !wanted {
			u.hold(scope, asOf) // until show drops it
		}
	}
	u.place, u.chain = found.head.Seq, found.head.Chain
	if err := u.show(found); err != nil {
		return err
	}
	return u.bookmark()
}

// advance sends what the log has beyond the place, and a bookmark at the end. It
// ends before that when the turn was long.
func (u *subscriber) advance() error {
	u.late = false
	for rounds := 0; u.why.Load()&mustEnd == 0; rounds++ {
		head := u.s.store.Head()
		if head.Cluster != u.cluster || head.Seq < u.place || head.Seq == u.place && head.Chain != u.chain {
			return fmt.Errorf("the log of this server was replaced: %w", log.ErrOtherLog)
		}
		if head.Seq == u.place {
			break
		}
		if u.skip() {
			continue
		}
		if rounds > 0 && time.Since(u.now) > turnTime {
			u.late = true // the next turn goes on
			return nil
		}
		items, err := u.s.tail.after(u.place)
		// Behind the reading, so that the log cannot have become another one between.
		at := position{Cursor: log.Cursor{Cluster: u.cluster, Seq: u.place, Chain: u.chain}, sure: true}
		if other := u.s.isOf(&at); other != nil {
			return fmt.Errorf("the log of this server was replaced: %w", other)
		}
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
// left are the scopes that a NIC of the CN may have left at the place.
func (u *subscriber) conclude(met []projections.Gain, left ...log.Scope) error {
	u.due = false
	found := u.look(met)
	if len(left) > 0 && u.returned(left, found.head.Seq) {
		// Between the two the CN had no business there: all of it is told anew, as
		// of the head, and nothing of what happened meanwhile.
		for _, scope := range left {
			if _, held := u.held[scope]; !held {
				continue
			}
			if err := u.dropOne(scope, found.head.Seq); err != nil {
				return err
			}
		}
		found = u.look(met)
	}
	return u.show(found)
}

// round sends items, and what follows from them.
func (u *subscriber) round(items []*item) error {
	var met []projections.Gain
	var left []log.Scope
	moved, sent := false, 0
	for i, it := range items {
		if moved && !u.due && items[i-1].event.More == 0 {
			break // what follows is filtered by what the CN wants from here on
		}
		if own := u.concerns(it); own {
			if !u.leaves(feed.TypeEntry, own) {
				return u.withhold(it)
			}
			frame, err := it.frame()
			if err != nil {
				return err
			}
			if err := u.room(len(frame)); err != nil {
				return err
			}
			u.open()
			u.buf = append(u.buf, frame...)
			sent++
		}
		met = u.meet(it, met)
		if u.moves(it) {
			moved, left = true, leaves(it, left)
		}
		u.place, u.chain = it.entry.Seq, it.entry.Hash.Prefix()
	}
	u.s.metrics.entriesSent.Add(float64(sent))
	var err error
	switch {
	case u.due && u.place < u.pinned:
		// Objects only: scopes are compared when the pinned head is reached.
		if moved {
			u.silent = max(u.silent, u.pinned)
		}
		if len(met) > 0 {
			found := u.look(met)
			if !found.lapsed {
				found.interest = nil
			}
			err = u.show(found)
		}
	case u.due, moved, len(met) > 0:
		err = u.conclude(met, left...)
	}
	if err != nil {
		return err
	}
	if u.now.Sub(u.wrote) > feedQuiet { // nothing of a long way concerned this CN
		if err := u.send(&feed.Pong{Head: u.place}); err != nil {
			return err
		}
		if err := u.flush(); err != nil {
			return err
		}
	}
	return u.bookmark()
}

// concerns reports whether the entry belongs to a scope that is held, and is not
// told with it: one up to the scope's as-of may be of a time when the CN had no
// business there, and what came of it stands in the scope.
//
// Entries come in runs of one scope, and comparing costs a fraction of looking up:
// recent is held since before an entry that was sent.
func (u *subscriber) concerns(it *item) bool {
	if slices.Contains(it.event.Scopes, u.recent) {
		return true
	}
	for _, scope := range it.event.Scopes {
		if asOf, ok := u.held[scope]; ok && it.entry.Seq > asOf {
			u.recent = scope
			return true
		}
	}
	return false
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
			at, known := u.met[pair]
			known = known && at < it.entry.Seq || slices.Contains(met, pair)
			if it.event.Action != log.Delete && !known {
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
