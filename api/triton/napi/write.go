package napi

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/backend"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// retryTime is the wait before a change is proposed again, in an election.
const retryTime = 50 * time.Millisecond

// maxGuarded bounds how often a write is built again because its object changed
// meanwhile.
const maxGuarded = 32

// propose writes a change, and waits until this server has applied it. If its result is
// unknown, as in an election, it is proposed again with the same id, and so applied
// once. A refusal is the error.
func (s *Service) propose(r *http.Request, ops ...log.Op) (log.Result, error) {
	id, err := s.cfg.NewID()
	if err != nil {
		return log.Result{}, err
	}
	var by log.Author // without a connection, as in tests
	if who, ok := matrix.From(r.Context()); ok {
		by = who.Author()
	}
	actor := s.cfg.Actor(r)
	if len(actor) > log.MaxActorBytes {
		actor = actor[:log.MaxActorBytes]
	}
	ctx, cancel := within(r, writeTime)
	defer cancel()
	var fate error // the error of an earlier attempt that may have been written
	for {
		result, err := s.store.Propose(ctx, &log.Change{ID: id, Actor: actor, By: by, Ops: ops})
		switch {
		case err == nil && result.Refusal != nil:
			return result, result.Refusal
		case err == nil:
			s.acknowledged.Note(result.Last)
			return result, s.store.WaitSeq(ctx, result.Last)
		case fate != nil || errors.Is(err, backend.ErrUnknown):
			fate = err
		case rest.ExceededOf(err) != nil:
			exceeded := rest.ExceededOf(err)
			p := fail(http.StatusTooManyRequests, codeBudget, "nothing was written: "+exceeded.Error())
			p.Budget = exceeded
			return result, p
		case errors.Is(err, backend.ErrClock):
			return result, fail(http.StatusServiceUnavailable, codeUnavailable, "nothing was written: "+err.Error())
		case errors.Is(err, backend.ErrOverloaded):
			return result, fail(http.StatusServiceUnavailable, codeUnavailable, "too many changes are waiting; nothing was written")
		case errors.Is(err, log.ErrNoRoom):
			return result, fail(http.StatusInsufficientStorage, log.CodeNoRoom, err.Error())
		case errors.Is(err, log.ErrTooLarge):
			return result, fail(http.StatusRequestEntityTooLarge, codeTooLarge, err.Error())
		}
		if pause(ctx, retryTime) != nil {
			return result, unknown(err, fate != nil)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// unknown is the answer when the time ran out before a change was decided; written: it
// may have been written.
func unknown(err error, written bool) error {
	if errors.Is(err, backend.ErrNoLeader) && !written {
		return fail(http.StatusServiceUnavailable, codeUnavailable, "the cluster has no leader now; nothing was written")
	}
	return fail(http.StatusServiceUnavailable, codeUnavailable, "it is not known whether the change was made, look for it: "+err.Error())
}

// target is an object that a request changes.
type target struct {
	kind     log.Kind
	id, noun string
	// guarded: the operations depend on the object as it is, so they must be built
	// again if it changes meanwhile.
	guarded bool
}

// change proposes what build makes of the present object. Conditions on its tag, and on
// what build read, are part of the change: if the object has changed when the change is
// decided, everything is done again. What is not there is looked for again when this
// server has all that was acknowledged.
func (s *Service) change(r *http.Request, t target, build func(state *projections.State, rec projections.Record) ([]log.Op, error)) (log.Result, error) {
	if err := s.fresh(r); err != nil {
		return log.Result{}, err
	}
	guarded := t.guarded || isConditional(r)
	confirmed := r.URL.Query().Has("consistent") // fresh has asked the leader
	return s.decided(r, guarded, func() ([]log.Op, error) {
		ops, err := s.prepare(r, t, guarded, build)
		var p *problem
		if errors.As(err, &p) && p.status == http.StatusNotFound && !confirmed {
			// It may have been made through another server a moment ago.
			if err := s.freshAs(r, true); err != nil {
				return nil, err
			}
			confirmed = true
			return s.prepare(r, t, guarded, build)
		}
		return ops, err
	})
}

// decided proposes what prepare returns; without operations there is nothing to do. If
// the operations are guarded and what they depend on has changed when they are decided,
// they are prepared again.
func (s *Service) decided(r *http.Request, guarded bool, prepare func() ([]log.Op, error)) (log.Result, error) {
	for try := 0; ; try++ {
		ops, err := prepare()
		if err != nil || len(ops) == 0 {
			return log.Result{}, err
		}
		result, err := s.propose(r, ops...)
		if !guarded || try == maxGuarded || !overtaken(err) {
			return result, err
		}
		// A server behind the leader must first apply what the leader had.
		ctx, cancel := within(r, readTime)
		_, err = s.store.Consistent(ctx)
		cancel()
		if err != nil {
			return result, fail(http.StatusServiceUnavailable, codeUnavailable, "no leader confirmed that this server is up to date")
		}
	}
}

// overtaken reports whether a change was refused because what it depends on is no longer
// as it was: an object has another revision, or one was made that was not there.
func overtaken(err error) bool {
	var refusal *log.Refusal
	if !errors.As(err, &refusal) {
		return false
	}
	return refusal.Code == log.CodePreconditionFailed || len(refusal.Errors) == 1 && refusal.Errors[0].Code == log.ElementDuplicate &&
		strings.HasSuffix(refusal.Errors[0].Field, "ip")
}

// prepare reads the object, judges the conditions and builds the operations.
func (s *Service) prepare(r *http.Request, t target, guarded bool, build func(*projections.State, projections.Record) ([]log.Op, error)) (ops []log.Op, err error) {
	s.store.View(func(state *projections.State, _ log.Cursor) {
		rec, ok := state.Get(t.kind, t.id)
		if !ok {
			err = notFound(t.noun)
			return
		}
		if err = conditions(r, rec.ETag()); err != nil {
			return
		}
		ops, err = build(state, rec)
		for i := range ops {
			if guarded && ops[i].Kind == t.kind && sameID(ops[i].ID, rec.Object) {
				ops[i].IfMatch, ops[i].IfSeq = rec.Revision, rec.Seq
				break
			}
		}
	})
	return ops, err
}

func sameID(id string, o log.Object) bool { return id == o.ID() }

// update changes fields of an object.
func (s *Service) update(r *http.Request, t target, o log.Object, set []string) error {
	_, err := s.change(r, t, func(_ *projections.State, rec projections.Record) ([]log.Op, error) {
		return []log.Op{{Action: log.Update, Kind: t.kind, ID: rec.Object.ID(), Set: set, Object: o}}, nil
	})
	return err
}

// remove deletes an object.
func (s *Service) remove(w http.ResponseWriter, r *http.Request, t target) error {
	_, err := s.change(r, t, func(_ *projections.State, rec projections.Record) ([]log.Op, error) {
		return []log.Op{{Action: log.Delete, Kind: t.kind, ID: rec.Object.ID()}}, nil
	})
	if err != nil {
		return err
	}
	return noContent(w)
}
