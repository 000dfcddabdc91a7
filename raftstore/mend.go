package raftstore

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
	"rutter/raftstore/internal/admission"
	"rutter/raftstore/internal/window"
)

// The log's time is set, back or forward, by the event of a setting
// (projections.SettingClusterTime): the one exception to "time never goes back". So
// the log is made of stretches along which times do not go back, and each event of
// that setting begins one.

// mend returns the time that a change asks the log to be set to, if it does.
func (k *timekeeper) mend(c *log.Change) (to log.Time, forced, ok bool) {
	if len(c.Ops) != 1 || c.Ops[0].Kind != log.KindSetting {
		return 0, false, false // nearly all
	}
	k.store.mu.RLock()
	defer k.store.mu.RUnlock()
	return rules.MendOf(k.store.state, c)
}

// checkMend refuses, on the leader and before it is proposed, to set the log's time
// to what the servers' clocks do not show, unless the change says that it is meant.
func (k *timekeeper) checkMend(to log.Time, forced bool) *log.Refusal {
	if forced {
		return nil
	}
	a := k.clocks.Agreement.Load()
	agreed := a.At(time.Now())
	off := time.Duration(to - agreed)
	switch {
	case !a.Judged:
		return badMend("the servers' clocks differ, and no majority says which is right", "set the clocks right, or force the time if you know it")
	case off.Abs() > a.Bound+k.store.cfg.ProposeTimeout: // it may have been retried for so long
		return badMend(fmt.Sprintf("it is %s, which shows %s", aside(off), agreed), "send that time, or force yours if the clocks of all servers are wrong")
	}
	return nil
}

func badMend(what, remedy string) *log.Refusal {
	return &log.Refusal{
		Code: log.CodeInvalidParameters, Message: "the log's time was not set: " + what,
		Errors: []log.FieldError{{Field: "value", Code: log.ElementInvalid, Message: what, Remedy: remedy}},
	}
}

// enqueueMend is enqueue for a change that sets the log's time. What was stamped
// before it must not come behind it, since that could bring the time from before it
// back: the queue refuses it, and who proposed it tries again. Behind it, stamps stay
// with the agreed clock until it is known what became of it.
func (k *timekeeper) enqueueMend(c *log.Change, to log.Time, forced bool, done func(admission.Outcome)) error {
	if refusal := k.checkMend(to, forced); refusal != nil {
		k.store.counters.refused.Add(1)
		if !k.store.tasks.Start(func() { done(admission.Outcome{Result: log.Result{ChangeID: c.ID, Refusal: refusal}}) }) {
			return ErrStopped
		}
		return nil
	}
	if !k.clock.Mend() {
		return fmt.Errorf("%w: another one that sets the log's time is under way", ErrOverloaded)
	}
	p, err := k.store.proposer.stamped(c)
	if err == nil {
		p.Over = sync.OnceFunc(k.mended)
		p.Done = func(o admission.Outcome) {
			if !errors.Is(o.Err, ErrUnknown) { // it may be in raft, whose disk hangs: see land
				p.Over()
			}
			done(o)
		}
		err = k.store.proposer.queue.PutMend(p)
	}
	if err != nil {
		k.mended()
		return err
	}
	k.store.counters.proposals.Add(1)
	return nil
}

// checkID refuses a change whose id the window cannot judge. That of a change which
// sets the log's time is looked at by the time that it sets, since the window goes by
// the one that is wrong: so nothing keeps an operator from setting it.
func (a *applier) checkID(c *log.Change, asker log.Asker) *log.Refusal {
	to, _, ok := a.store.times.mend(c)
	if !ok {
		return a.window.Check(c.ID, asker, c.Time)
	}
	_, v7 := c.ID.UnixMilli()
	off := time.Duration(window.TimeOf(c.ID) - to)
	switch {
	case !v7:
		return window.BadID(log.CodeInvalidParameters, c.ID, "is not a UUID of version 7", "make a new UUIDv7 for each change, and keep it for its retries")
	case off > window.MaxAhead || -off > a.store.cfg.DedupeAge:
		return window.BadID(log.CodeInvalidParameters, c.ID, fmt.Sprintf("is of %s, and the log is to be set to %s: one of them is wrong", log.Time(int64(to)+int64(off)), to), "send it from a machine whose clock shows the time that is set")
	}
	return nil
}

// setTime makes an event's time the log's, if the event sets it. The caller is the
// FSM's goroutine.
func (a *applier) setTime(events []*log.Event) {
	if len(events) != 1 || !projections.Mends(events[0]) {
		return
	}
	to := events[0].Time
	if to < a.head.Time {
		a.window.TimeSetBack(to)
	} else {
		a.window.Advance(to) // before it remembers this change, which is of the time after the leap
	}
	a.head.Time = to
}

// mended goes on from the log's time as it is after a change that set it, or that
// could not.
func (k *timekeeper) mended() {
	k.store.mu.RLock()
	logTime := k.store.head.Time
	k.store.mu.RUnlock()
	k.clock.GoOnFrom(logTime)
}
