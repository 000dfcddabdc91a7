package raftstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/raftstore/internal/clocks"
	"rutter/raftstore/internal/window"
)

const (
	// clockWait is how long an elected server waits for the clocks of a majority, which
	// it already knows if the cluster ran before.
	clockWait = time.Second
	// clockGiveEvery is the time between two attempts to hand the leadership to a server
	// whose clock is right. Until then, stamps follow the agreed clock.
	clockGiveEvery = 10 * time.Second
	// oddGap is how far ahead of the log's time the clock of a server without other
	// voters may be at a start. Beyond it, the server logs a warning. It is long because
	// an idle cluster for weeks looks the same as a clock that is ahead.
	oddGap = 30 * 24 * time.Hour
)

var (
	errHandedOn      = errors.New("its clock is wrong, and another server's is right")
	errClocksUnknown = errors.New("no majority of the servers has said what its clock shows")
)

// Clock is what a server knows about the time and about the other servers' clocks.
type Clock struct {
	Now    log.Time          `json:"now"`       // by this server's own clock
	Agreed log.Time          `json:"agreed"`    // what the servers agree on
	Offset time.Duration     `json:"offset_ns"` // of this server's clock, from the agreed one
	Ahead  time.Duration     `json:"ahead_ns"`  // of the log's time before the agreed clock; below 0: no entry since then
	Judged bool              `json:"judged"`    // a majority of the known clocks agrees
	Bound  time.Duration     `json:"bound_ns"`  // Config.MaxClockOffset
	Others []OtherClock      `json:"others"`    // sorted by name
	Alarms []string          `json:"alarms"`    // for operators to act on
	alarms map[string]string // the same texts, by a key of the problem and the server
}

// OtherClock is the clock of another server.
type OtherClock struct {
	ID     string        `json:"id"`
	Known  bool          `json:"known"`
	Wrong  bool          `json:"wrong,omitempty"`
	Offset time.Duration `json:"offset_ns"` // from the agreed clock
	Doubt  time.Duration `json:"doubt_ns"`  // of the measurement
	Error  string        `json:"error,omitempty"`
}

// Clock returns what this server now knows about the time.
func (s *Store) Clock() Clock {
	now := time.Now()
	a := s.times.clocks.Agreement.Load()
	c := Clock{
		Now: log.TimeOf(s.cfg.Now()), Agreed: a.At(now), Judged: a.Judged, Bound: a.Bound, alarms: make(map[string]string),
	}
	c.Offset = time.Duration(c.Now - c.Agreed)
	s.mu.RLock()
	logTime := s.head.Time
	s.mu.RUnlock()
	c.Ahead = time.Duration(logTime - c.Agreed)
	for id, trouble := range s.times.clocks.Others() {
		offset, known := a.Differs[id]
		c.Others = append(c.Others, OtherClock{id, known, a.Wrong(id), offset, a.Doubts[id], trouble})
	}
	slices.SortFunc(c.Others, func(a, b OtherClock) int { return cmp.Compare(a.ID, b.ID) })
	c.addAlarms(s.cfg.ID, a, logTime)
	if _, err := s.times.clock.Sure(); err != nil && a.Alone() && s.lead.leading() {
		c.alarms["jump"] = err.Error()
	}
	for _, key := range slices.Sorted(maps.Keys(c.alarms)) {
		c.Alarms = append(c.Alarms, c.alarms[key])
	}
	return c
}

// Now returns the time that the servers agree on. Certificates are issued by it.
func (s *Store) Now() time.Time { return s.times.clocks.Agreement.Load().At(time.Now()).Std() }

// LogNow returns the time that a new entry would get: the agreed time, or the time of the
// last entry if that is later. It may be called within View.
func (s *Store) LogNow() time.Time {
	logTime := log.Time(s.headTime.Load())
	if now := s.Now(); now.After(logTime.Std()) {
		return now
	}
	return logTime.Std()
}

// NewChangeID returns a change id, made at LogNow, for a client that sent none. The
// server's own clock is not used, because ids made by a wrong clock would be refused.
func (s *Store) NewChangeID() log.UUID { return window.NewID(s.LogNow()) }

// addAlarms adds the alarms that operators must act on.
func (c *Clock) addAlarms(own string, a *clocks.Agreement, logTime log.Time) {
	if a.Wrong(own) {
		c.alarms["wrong "+own] = fmt.Sprintf("the clock of this server, %s, is %s: set it right; it does not lead while another server can, and nothing is stamped by it", own, describeOffset(c.Offset))
	}
	for _, o := range c.Others {
		if o.Wrong {
			c.alarms["wrong "+o.ID] = fmt.Sprintf("the clock of %s is %s: set it right; it does not lead while another server can, and nothing is stamped by it", o.ID, describeOffset(o.Offset))
		}
	}
	if !a.Judged {
		least, most := time.Duration(0), time.Duration(0)
		for _, off := range a.Differs {
			least, most = min(least, off), max(most, off)
		}
		c.alarms["apart"] = fmt.Sprintf("the servers' clocks differ by %v, and no majority says which is right: set them right; the log's time goes on from its last entry, by the slower of them", (most - least).Round(time.Millisecond))
	}
	if c.Ahead > 2*a.Bound {
		c.alarms["ahead"] = fmt.Sprintf("the log's time, %s, is %v ahead of the servers' clocks: it goes on from there; if the clocks are right, rutter cluster time set sets it back", logTime, c.Ahead.Round(time.Millisecond))
	}
}

// describeOffset describes the offset of a clock.
func describeOffset(offset time.Duration) string {
	if offset < 0 {
		return fmt.Sprintf("%v behind the servers' agreed clock", -offset.Round(time.Millisecond))
	}
	return fmt.Sprintf("%v ahead of the servers' agreed clock", offset.Round(time.Millisecond))
}

// timekeeper reads the servers' clocks, and stamps changes on the leader.
type timekeeper struct {
	store  *Store
	clocks *clocks.Clocks
	clock  *clocks.Stamper
}

// logAlarms logs each clock alarm that began or ended since before, and returns the
// alarms of now.
func (k *timekeeper) logAlarms(before map[string]string) map[string]string {
	now := k.store.Clock().alarms
	for key, text := range now {
		if before[key] == "" {
			k.store.logger.Warn("clock alarm", "what", text)
		}
	}
	for key := range before {
		if now[key] == "" {
			k.store.logger.Info("clock alarm over", "of", key)
		}
	}
	return now
}

// assumeTime agrees on the time before an elected server stamps anything. If this
// server's clock is wrong and another server's is right, it hands the leadership on.
func (k *timekeeper) assumeTime(ctx context.Context, r *raft.Raft) error {
	if err := k.awaitClocks(ctx, r); err != nil {
		return err
	}
	k.clocks.Settle(time.Now())
	a := k.clocks.Agreement.Load()
	if a.Wrong(k.store.cfg.ID) {
		if err := k.store.lead.handOverToBest(ctx, r); err == nil && r.State() != raft.Leader {
			return errHandedOn
		}
	}
	k.store.mu.RLock()
	logTime := k.store.head.Time
	k.store.mu.RUnlock()
	if gap := time.Duration(log.TimeOf(k.store.cfg.Now()) - logTime); a.Alone() && logTime > 0 && gap > oddGap {
		k.store.logger.Warn("this server's clock is far ahead of the last entry, and there is no other to compare it with: if it is wrong, set it right before anything is written", "clock", log.TimeOf(k.store.cfg.Now()), "log", logTime)
	}
	k.clock.Reset(logTime)
	return nil
}

// awaitClocks waits until a majority of the voters has reported its clock, or that it
// cannot.
func (k *timekeeper) awaitClocks(ctx context.Context, r *raft.Raft) error {
	k.clocks.MembersAre(r.GetConfiguration().Configuration().Servers)
	enough := func() bool {
		answered, voters := k.clocks.Answered(time.Now())
		return answered > voters/2
	}
	if enough() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, clockWait)
	defer cancel()
	if !k.store.tasks.Start(func() { k.readClocks(ctx, r) }) {
		return ErrStopped
	}
	for !enough() {
		timer := time.NewTimer(handOverPoll)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errClocksUnknown
		}
	}
	return nil
}

// checkClock hands the leadership on if this server's clock is wrong and another server's
// is right. It returns the time of the last attempt.
func (k *timekeeper) checkClock(ctx context.Context, r *raft.Raft, tried time.Time) time.Time {
	if r.State() != raft.Leader || !k.clocks.Agreement.Load().Wrong(k.store.cfg.ID) {
		return time.Time{}
	}
	if !tried.IsZero() && time.Since(tried) < clockGiveEvery {
		return tried
	}
	k.store.logger.Warn("giving the leadership away", "because", errHandedOn)
	if err := k.store.lead.handOverToBest(ctx, r); err != nil {
		k.store.logger.Warn("no server took the leadership; changes are stamped by the agreed clock", "error", err)
	}
	return time.Now()
}

const (
	// clockEvery is the time between two readings of the other servers' clocks.
	clockEvery = time.Second
	// clockAsk bounds one reading. A slower one is too inexact to help.
	clockAsk = 2 * time.Second
)

// clockVersion is the version of the answer to askClock: | version (1) | Unix time in ns
// (8) |.
const (
	clockVersion = 1
	clockAnswer  = 1 + 8
)

// answerClock returns what this server's clock shows, for a peer.
func (k *timekeeper) answerClock() []byte {
	return binary.BigEndian.AppendUint64([]byte{clockVersion}, uint64(log.TimeOf(k.store.cfg.Now())))
}

// readClock reads the clock of the server at an address.
func (k *timekeeper) readClock(ctx context.Context, address string) (clocks.Measured, error) {
	ctx, cancel := context.WithTimeout(ctx, clockAsk)
	defer cancel()
	begun := time.Now()
	answer, err := k.store.endpoint.callPeer(ctx, address, askClock, nil)
	if err != nil {
		return clocks.Measured{}, err
	}
	trip := time.Since(begun)
	if len(answer) < clockAnswer || answer[0] != clockVersion {
		return clocks.Measured{}, fmt.Errorf("peer request of type %d is not known in this form: answer of %d bytes", askClock, len(answer))
	}
	shown := log.Time(binary.BigEndian.Uint64(answer[1:]))
	return clocks.Measured{Clock: shown, At: begun.Add(trip / 2), Doubt: trip / 2}, nil
}

// readClocks reads the clocks of all other members once, and agrees on the time.
func (k *timekeeper) readClocks(ctx context.Context, r *raft.Raft) {
	c := k.clocks
	members := r.GetConfiguration().Configuration().Servers
	c.MembersAre(members)
	var wg sync.WaitGroup
	for _, m := range members {
		if id := string(m.ID); id != k.store.cfg.ID {
			wg.Go(func() {
				shown, err := k.readClock(ctx, string(m.Address))
				c.Note(id, shown, err)
			})
		}
	}
	wg.Wait()
	c.Settle(time.Now())
}

// runClocks reads the other servers' clocks each clockEvery, until ctx is done.
func (k *timekeeper) runClocks(ctx context.Context, r *raft.Raft) {
	var alarms map[string]string
	for {
		k.readClocks(ctx, r)
		alarms = k.logAlarms(alarms)
		timer := time.NewTimer(clockEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}
