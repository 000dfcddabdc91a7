package clocks

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"rutter/log"
)

// Err: no clock can be trusted. Nothing was written.
var Err = errors.New("raftstore: the servers' clocks are wrong")

// slewWithin is how far the log's time may be ahead of the agreed clock and still come
// back by itself: it runs at half speed, so that takes at most two hours. If it is
// further ahead, an operator must set it. A server without other voters does not slow
// down, because its own clock may be the wrong one.
const slewWithin = time.Hour

// Stamper stamps changes on the leader. A stamp is the leader's own clock as long as that
// is near the agreed clock, and else the agreed clock. So no single clock moves the log's
// time. If the log's time is ahead of that, it goes on by the monotonic clock. It must
// not stand still, because clients wait for times, and make change ids by clocks that are
// right.
type Stamper struct {
	now    func() time.Time // the wall clock
	jump   time.Duration    // Config.MaxClockJump
	bound  time.Duration    // Config.MaxClockOffset
	agreed func() *Agreement

	mu   sync.Mutex
	base time.Time     // moment of the monotonic clock at which this server took over
	wall time.Duration // the wall clock then, since 1970
	last log.Time      // the highest stamp, or the log's time
	at   time.Time     // moment of the monotonic clock at that stamp
	// mending: a change that sets the log's time is under way. Stamps after it must not
	// bring the old time back.
	mending bool
}

// NewStamper returns a Stamper. now reads this server's wall clock; agreed returns the
// present Agreement. jump is how far the wall clock of a server without other voters may
// run ahead of the monotonic clock. bound is how far the wall clock may be from the
// agreed clock.
func NewStamper(now func() time.Time, jump, bound time.Duration, agreed func() *Agreement) *Stamper {
	return &Stamper{now: now, jump: jump, bound: bound, agreed: agreed}
}

// Reset begins with the log's time. Each new leader calls it.
func (c *Stamper) Reset(logTime log.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.base, c.wall = now, time.Duration(c.now().UnixNano())
	c.last, c.at, c.mending = logTime, now, false
}

// Mend keeps stamps at the agreed clock, independent of the log's time, until GoOnFrom.
// It reports false if they are already kept so.
func (c *Stamper) Mend() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mending {
		return false
	}
	c.mending = true
	return true
}

// GoOnFrom makes stamps go on from the log's time.
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
		return to, nil // until then the log's time stands still
	case a.Judged && !a.Alone() && ahead <= slewWithin:
		c.last += log.Time(passed / 2)
	default:
		c.last += log.Time(passed)
	}
	return c.last, nil
}

// read returns the time, by this server's own clock if that can be trusted, and the last
// Agreement. The caller holds mu.
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

// Sure returns the time, or an error if it is only a guess. It is for decisions that
// cannot be taken back.
func (c *Stamper) Sure() (log.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.base.IsZero() { // this server has never led, so there is no earlier moment to compare with
		c.base, c.wall = now, time.Duration(c.now().UnixNano())
	}
	at, a, err := c.read(now)
	if err == nil && !a.Judged {
		err = fmt.Errorf("%w: the servers' clocks differ, and nobody can tell which one is right: set them right", Err)
	}
	return at, err
}

// checkJump compares the progress of the wall clock of a server without other voters with
// the elapsed time. A clock that was set back does no harm, because the log's time goes
// on.
func checkJump(wall, elapsed, bound time.Duration) error {
	if off := wall - elapsed; off > bound {
		return fmt.Errorf("%w: that of this server, which has no other to ask, ran ahead by %v since it became the leader: set it right, or start the server anew to take it as it is", Err, off.Round(time.Millisecond))
	}
	return nil
}
