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

// An event of a setting (projections.SettingClusterTime) sets the log's time back or
// forward. It is the only exception to "time never goes back". So the log consists of
// stretches within which times do not go back, and each event of that setting begins one.

// mend returns the time to which a change would set the log, if it does so.
func (k *timekeeper) mend(c *log.Change) (to log.Time, forced, ok bool) {
	if len(c.Ops) != 1 || c.Ops[0].Kind != log.KindSetting {
		return 0, false, false // nearly all changes
	}
	k.store.mu.RLock()
	defer k.store.mu.RUnlock()
	return rules.MendOf(k.store.state, c)
}

// checkMend refuses a change that sets the log's time to one that the servers' clocks do
// not show, unless the change says that it is forced. It runs on the leader, before the
// change is proposed.
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
	case off.Abs() > a.Bound+k.store.cfg.ProposeTimeout: // a client may have retried for so long
		return badMend(fmt.Sprintf("it is %s, which shows %s", describeOffset(off), agreed), "send that time, or force yours if the clocks of all servers are wrong")
	}
	return nil
}

func badMend(what, remedy string) *log.Refusal {
	return &log.Refusal{
		Code: log.CodeInvalidParameters, Message: "the log's time was not set: " + what,
		Errors: []log.FieldError{{Field: "value", Code: log.ElementInvalid, Message: what, Remedy: remedy}},
	}
}

// enqueueMend is enqueue for a change that sets the log's time. A change that was stamped
// before it must not follow it in the log, because its stamp could bring the old time
// back. So the queue refuses such changes, and their proposers try again. Later stamps
// stay at the agreed clock until the outcome of this change is known.
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
			if !errors.Is(o.Err, ErrUnknown) { // the change may be in raft, whose disk hangs: see proposer.await
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

// checkID refuses a change whose id the window cannot judge. The id of a change that sets
// the log's time is compared with the time that it sets, because the window uses the
// log's time, which is wrong. So an operator can always set the time.
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

// setTime sets the log's time to that of an event, if the event sets it. The caller is
// the FSM's goroutine.
func (a *applier) setTime(events []*log.Event) {
	if len(events) != 1 || !projections.Mends(events[0]) {
		return
	}
	to := events[0].Time
	if to < a.head.Time {
		a.window.TimeSetBack(to)
	} else {
		a.window.Advance(to) // before the window remembers this change, which belongs to the time after the leap
	}
	a.head.Time = to
}

// mended ends the state that enqueueMend began: stamps go on from the log's time, whether
// the change set it or not.
func (k *timekeeper) mended() {
	k.store.mu.RLock()
	logTime := k.store.head.Time
	k.store.mu.RUnlock()
	k.clock.GoOnFrom(logTime)
}
