package raftstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
)

// The log's time is set, back or forward, by the event of a setting
// (projections.SettingClusterTime): the one exception to "time never goes back". So
// the log is made of stretches along which times do not go back, and each event of
// that setting begins one.

// mendRef names the setting.
var mendRef = Ref{log.KindSetting, projections.SettingClusterTime}

// mend returns the time that a change asks the log to be set to, if it does.
func (s *Store) mend(c *log.Change) (to log.Time, forced, ok bool) {
	if len(c.Ops) != 1 || c.Ops[0].Kind != log.KindSetting {
		return 0, false, false // nearly all
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return rules.MendOf(s.state, c)
}

// checkMend refuses, on the leader and before it is proposed, to set the log's time
// to what the servers' clocks do not show, unless the change says that it is meant.
func (s *Store) checkMend(to log.Time, forced bool) *log.Refusal {
	if forced {
		return nil
	}
	a := s.clocks.agreement.Load()
	agreed := a.at(time.Now())
	off := time.Duration(to - agreed)
	switch {
	case !a.judged:
		return badMend("the servers' clocks differ, and no majority says which is right", "set the clocks right, or force the time if you know it")
	case off.Abs() > a.bound+s.cfg.ProposeTimeout: // it may have been retried for so long
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
func (s *Store) enqueueMend(c *log.Change, to log.Time, forced bool, done func(outcome)) error {
	if refusal := s.checkMend(to, forced); refusal != nil {
		s.counters.refused.Add(1)
		if !s.tasks.start(func() { done(outcome{result: log.Result{ChangeID: c.ID, Refusal: refusal}}) }) {
			return ErrStopped
		}
		return nil
	}
	if !s.clock.mend() {
		return fmt.Errorf("%w: another one that sets the log's time is under way", ErrOverloaded)
	}
	p, err := s.stamped(c)
	if err == nil {
		p.over = sync.OnceFunc(s.mended)
		p.done = func(o outcome) {
			if !errors.Is(o.err, ErrUnknown) { // it may be in raft, whose disk hangs: see land
				p.over()
			}
			done(o)
		}
		err = s.queue.putMend(p)
	}
	if err != nil {
		s.mended()
		return err
	}
	s.counters.proposals.Add(1)
	return nil
}

// checkID refuses a change whose id the window cannot judge. That of a change which
// sets the log's time is looked at by the time that it sets, since the window goes by
// the one that is wrong: so nothing keeps an operator from setting it.
func (s *Store) checkID(c *log.Change, asker log.Asker) *log.Refusal {
	to, _, ok := s.mend(c)
	if !ok {
		return s.applier.window.check(c.ID, asker, c.Time)
	}
	_, v7 := c.ID.UnixMilli()
	off := time.Duration(timeOfID(c.ID) - to)
	switch {
	case !v7:
		return badID(log.CodeInvalidParameters, c.ID, "is not a UUID of version 7", "make a new UUIDv7 for each change, and keep it for its retries")
	case off > maxIDAhead || -off > s.cfg.DedupeAge:
		return badID(log.CodeInvalidParameters, c.ID, fmt.Sprintf("is of %s, and the log is to be set to %s: one of them is wrong", log.Time(int64(to)+int64(off)), to), "send it from a machine whose clock shows the time that is set")
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
	if to < a.head.time {
		a.window.timeSetBack(to)
	} else {
		a.window.advance(to) // before it remembers this change, which is of the time after the leap
	}
	a.head.time = to
}

// mended goes on from the log's time as it is after a change that set it, or that
// could not.
func (s *Store) mended() {
	s.mu.RLock()
	logTime := s.head.time
	s.mu.RUnlock()
	s.clock.goOnFrom(logTime)
}

// mends returns the seqs after low, up to high, of the events that set the log's
// time, in order.
func (p *pastReader) mends(low, high log.Seq) ([]log.Seq, error) {
	if err := p.resolve(mendRef); err != nil || p.known[mendRef] == nil {
		return nil, err // it is never deleted: nobody ever set it
	}
	return p.history(mendRef, low+1, high)
}

// placeAt returns the last entry that is not after a time, after a seq low; low if
// there is none. Of the stretches of the log along which times do not go back it
// looks at the newest that had begun at that time: what was stamped before time was
// set back, with times that were wrong, is found by its seq only. A row that cannot
// be read counts as young.
func (p *pastReader) placeAt(low log.Seq, at log.Time) (log.Seq, error) {
	high := p.head.seq
	mends, err := p.mends(low, high)
	if err != nil {
		return 0, err
	}
	for i := len(mends) - 1; i >= 0; i-- {
		begun, err := timeOf(p.tx, mends[i], high)
		if err != nil {
			return 0, err
		}
		if begun <= at {
			return lastBefore(p.tx, mends[i]-1, high, at), nil
		}
		high = mends[i] - 1
	}
	return lastBefore(p.tx, low, high, at), nil
}

// seqAt returns the last entry that is not after a time: see placeAt. A time before
// the floor's is refused: what was then is not known. mended says that the log's time
// may have been set; if it never was, its entries need not be looked through for that.
func seqAt(ctx context.Context, tx *bbolt.Tx, c *blocks, at log.Time, mended bool) (log.Seq, error) {
	h, _, err := readMeta(tx)
	if err != nil || h.seq == h.floor {
		return h.floor, err
	}
	var seq log.Seq
	if mended {
		var p *pastReader
		if p, err = newPastReader(ctx, tx, c, h.seq); err == nil {
			seq, err = p.placeAt(h.floor, at)
		}
	} else {
		seq = lastBefore(tx, h.floor, h.seq, at)
	}
	if err == nil && seq == h.floor && h.floor > 0 {
		return 0, fmt.Errorf("%s is before the entries that are kept, after seq %d: %w", at, h.floor, log.ErrCompacted)
	}
	return seq, err
}
