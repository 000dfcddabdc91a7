package clocks

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"rutter/log"
)

// Err: a clock cannot be believed. Nothing was written.
var Err = errors.New("raftstore: the servers' clocks are wrong")

// slewWithin is up to how far the log's time may be ahead of the agreed clock and
// come back by itself, by going half as fast: within two hours of it. What is
// further ahead an operator sets right. A server that is alone does not:
// its clock may as well be the one that is wrong.
const slewWithin = time.Hour

// Stamper stamps changes on the leader. A stamp is what the leader's own clock shows
// as long as that is near the clock that the servers agree on, and else that one, so
// that no single clock moves the log's time. If the log's time is ahead of it, it
// goes on from where it is by the monotonic clock: whoever waits for a time, or makes
// change ids by a clock that is right, must not find it standing still.
type Stamper struct {
	now    func() time.Time // the wall clock
	jump   time.Duration    // Config.MaxClockJump
	bound  time.Duration    // Config.MaxClockOffset
	agreed func() *Agreement

	mu   sync.Mutex
	base time.Time     // of the monotonic clock, when this server took over
	wall time.Duration // the wall clock then, since 1970
	last log.Time      // the highest stamp, or the log's time
	at   time.Time     // of the monotonic clock, then
	// mending: a change that sets the log's time is under way. What is stamped
	// behind it must not bring back the time from before it.
	mending bool
}

// NewStamper stamps by now, which is this server's wall clock, and by what agreed says.
// jump bounds how far the wall clock of a server that has no other to ask may run ahead
// of the monotonic one; bound is how far it may be from the agreed one.
func NewStamper(now func() time.Time, jump, bound time.Duration, agreed func() *Agreement) *Stamper {
	return &Stamper{now: now, jump: jump, bound: bound, agreed: agreed}
}

// Reset begins with the log's time, as each new leader does.
func (c *Stamper) Reset(logTime log.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.base, c.wall = now, time.Duration(c.now().UnixNano())
	c.last, c.at, c.mending = logTime, now, false
}

// Mend has stamps stay with the agreed clock, whatever the log's time is, until
// GoOnFrom. It reports false if they do already.
func (c *Stamper) Mend() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mending {
		return false
	}
	c.mending = true
	return true
}

// GoOnFrom has stamps go on from the log's time.
func (c *Stamper) GoOnFrom(logTime log.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.at, c.mending = logTime, time.Now(), false
}

// Stamp returns the time for a change. The error wraps Err.
func (c *Stamper) Stamp() (log.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	to, a, err := c.read(now)
	if err != nil || c.mending {
		return to, err
	}
	ahead := time.Duration(c.last - to)
	passed := now.Sub(c.at)
	c.at = now
	switch {
	case ahead <= 0:
		c.last = to
	case ahead <= c.bound:
		return to, nil // the log's time stands for so long
	case a.Judged && !a.Alone() && ahead <= slewWithin:
		c.last += log.Time(passed / 2)
	default:
		c.last += log.Time(passed)
	}
	return c.last, nil
}

// read returns what the time is, by this server's own clock if it may be believed,
// and what the servers agreed on last. The caller holds mu.
func (c *Stamper) read(now time.Time) (log.Time, *Agreement, error) {
	own, a := log.TimeOf(c.now()), c.agreed()
	if a.Alone() {
		return own, a, checkJump(time.Duration(own)-c.wall, now.Sub(c.base), c.jump)
	}
	if agreed := a.At(now); !a.Judged || time.Duration(own-agreed).Abs() > c.bound {
		return agreed, a, nil
	}
	return own, a, nil
}

// Sure returns what the time is, or an error if that is no more than a guess: for
// what cannot be taken back.
func (c *Stamper) Sure() (log.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.base.IsZero() { // it has never led: nothing to have run away from
		c.base, c.wall = now, time.Duration(c.now().UnixNano())
	}
	at, a, err := c.read(now)
	if err == nil && !a.Judged {
		err = fmt.Errorf("%w: the servers' clocks differ, and nobody can tell which one is right: set them right", Err)
	}
	return at, err
}

// checkJump compares how far the wall clock of a server that has no other to ask
// went with the time that passed. One that was set back is none the worse: the
// log's time goes on.
func checkJump(wall, elapsed, bound time.Duration) error {
	if off := wall - elapsed; off > bound {
		return fmt.Errorf("%w: that of this server, which has no other to ask, ran ahead by %v since it became the leader: set it right, or start the server anew to take it as it is", Err, off.Round(time.Millisecond))
	}
	return nil
}
