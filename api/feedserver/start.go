package feedserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"rutter/api/auth/matrix"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// waitTime is how long a server waits to reach a cursor that is ahead of it.
const waitTime = 10 * time.Second

// start sends the welcome, checks the cursor and pins the head.
func (u *subscriber) start() error {
	head := u.s.store.Head()
	u.at.Cluster = head.Cluster
	if err := u.send(&feed.Welcome{Version: feed.Version, Head: head, Knows: log.FeatureVersion}); err != nil {
		return err
	}
	if err := u.out.flush(); err != nil {
		return err
	}
	u.session.node.Begin(head.Seq)
	cursor := u.hello.Cursor
	for _, scope := range u.hello.Scopes {
		u.held.hold(scope.Scope, scope.AsOf)
	}
	u.hello.Scopes = nil // they may be many, and the stream lasts long
	if cursor == (log.Cursor{}) {
		u.cursorJudged(false)
		if len(u.held.asOf) > 0 {
			return u.reset(feed.ResetOtherLog, "scopes are held, but the cursor is of no log")
		}
		return u.renew() // a subscriber that holds nothing needs no entries
	}
	var err error
	u.task.block(func() { err = u.judge(u.s.ctx, cursor) })
	if reason, ok := resetReason(err); ok {
		u.cursorJudged(false)
		return u.reset(reason, err.Error())
	}
	if err != nil {
		if drainErr := u.drain(feed.DrainBehind, "this server has not reached the cursor: go to another"); drainErr != nil {
			return drainErr
		}
		return fmt.Errorf("hello at seq %d: %w", cursor.Seq, err)
	}
	u.cursorJudged(true)
	u.at.Seq, u.at.Chain, u.lookDue = cursor.Seq, cursor.Chain, true
	var interest []log.Scope
	u.s.store.View(func(state *projections.State, head log.Cursor) {
		u.pinned = head.Seq
		interest = state.Interest(u.hello.CN)
	})
	for _, asOf := range u.held.asOf {
		u.silentUntil = max(u.silentUntil, asOf)
	}
	interest = slices.DeleteFunc(interest, u.doubtful)
	if err := u.dropUnwanted(interest, u.pinned); err != nil {
		return err
	}
	if len(u.held.asOf) == 0 {
		return u.renew()
	}
	return nil
}

// judge checks the cursor, after it waited until this server has reached the cursor and
// each as-of. A cursor beyond the leader's head belongs to no log (SAFETY P4).
func (u *subscriber) judge(ctx context.Context, cursor log.Cursor) error {
	need := cursor.Seq
	for _, asOf := range u.held.asOf {
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

// cursorJudged records the result for the hello's cursor. A watermark may wait for it.
func (u *subscriber) cursorJudged(accepted bool) {
	if err := u.s.sessions.begin(u.session, u.at.Cluster, accepted); err != nil {
		u.disbelieve(err)
	}
}

// doubtful reports whether a held scope must be sent again, because the CN may have had
// no interest in it for some time since its cursor: one of its NICs came or went there.
// It is checked only for a CN with a certificate of its own.
//
// Beyond maxReturn entries the hello is accepted. docs/security.md says what a lying CN
// can learn by that: past entries, since the floor, of vnets that it may see now, and
// nothing of others, because its interest comes from the log. To doubt those hellos too
// would cost honest CNs: after an outage all CNs return at once from further back. They
// would all get whole scopes, MaxSnapshots at a time, instead of the entries that they
// share.
func (u *subscriber) doubtful(scope log.Scope) bool {
	if u.who.Role != matrix.CN || scope.Type != log.ScopeVNet && scope.Type != log.ScopeNetwork {
		return false
	}
	return u.held.has(scope) && u.pinned > u.at.Seq && u.pinned <= u.at.Seq+maxReturn && u.returned([]log.Scope{scope}, u.pinned)
}

// reset sends the subscriber a reset, because its cursor cannot be served, and then
// everything.
func (u *subscriber) reset(reason feed.ResetReason, text string) error {
	u.s.metrics.resets.WithLabelValues(reason.String()).Inc()
	u.s.logger.Warn("feed reset", "cn", u.hello.CN.String(), "reason", reason.String(), "text", text)
	u.session.setReset()
	if err := u.send(&feed.Reset{Head: u.s.store.Head().Seq, Reason: reason, Text: text}); err != nil {
		return err
	}
	return u.renew()
}

// renew sends every scope of the CN's interest as of the head, drops the other held
// scopes, and continues the stream from the head.
func (u *subscriber) renew() error {
	before := maps.Clone(u.held.asOf)
	u.held.releaseAll()
	u.lookDue, u.silentUntil = false, 0
	clear(u.met)
	found := u.look(nil)
	for scope, asOf := range before {
		if _, wanted := slices.BinarySearchFunc(found.interest, scope, log.Scope.Compare); !wanted {
			u.held.hold(scope, asOf) // until show drops it
		}
	}
	u.at.Seq, u.at.Chain = found.head.Seq, found.head.Chain
	if err := u.show(found); err != nil {
		return err
	}
	return u.bookmark()
}

// resetReason returns the reason why a cursor cannot be served. ok is false for errors
// that are not about the cursor.
func resetReason(err error) (reason feed.ResetReason, ok bool) {
	switch {
	case errors.Is(err, log.ErrOtherLog):
		return feed.ResetOtherLog, true
	case errors.Is(err, log.ErrAhead):
		return feed.ResetAhead, true
	case errors.Is(err, log.ErrCompacted):
		return feed.ResetCompacted, true
	case errors.Is(err, log.ErrCorrupt):
		return feed.ResetCorrupt, true
	}
	return 0, false
}
