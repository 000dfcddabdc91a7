package feedserver

import (
	"errors"
	"net"
	"sync"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/vmm"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// Why a subscriber is woken.
const (
	wakeStart       = reasonScheduled << (1 + iota)
	wakeLog         // the log has something for it
	wakeTick        // it is looked after
	wakePing        // the CN asked for an answer
	wakeAgain       // the CN asked for a scope anew
	wakeRequest     // the CN is asked about its VMs
	wakeWanted      // a barrier waits for what it knows
	wakeDrain       // the server stops
	wakeReplaced    // a newer session of the CN came
	wakeEnd         // the connection ended
	wakeDisbelieved // what the CN said of itself cannot be
)

// mustEnd are the reasons that end a stream.
const mustEnd = wakeDrain | wakeReplaced | wakeEnd | wakeDisbelieved

// runTime is how long a run lasts before other subscribers have theirs.
const runTime = 5 * time.Millisecond

// subscriber sends one CN its stream. Its position is all that it keeps of the
// log; what it cannot write yet, it has not read yet.
//
// The stream is a repetition of one round: entries from the position on, filtered
// by the scopes held; after one that may have changed the CN's interest the
// state is looked at, at a head h at or beyond it, and follows with objects that
// became visible, new scopes as of h, and drops. While catching up after the
// start no scope is added: that comes when the pinned head is reached (SAFETY F5).
//
// A scope is dropped where its entries end, at the start too, and not after the
// catching up: else an underlay NIC that is in a scope without entries would be
// kept for it, its deletion would be missed, and it would be believed again when its
// CN comes onto a vnet that is held.
//
// Invariant at a bookmark at seq p: what was sent, folded, is the state at p of
// the CN's interest at p. So between a look and its head there is none: what the
// look found, or no longer found, is of the head.
type subscriber struct {
	s       *parts
	conn    net.Conn
	session *session
	hello   *feed.Hello // its scopes are forgotten after the start
	who     matrix.Identity
	rights  frameRights
	task    *task
	self    *member       // of the watcher
	over    chan struct{} // closed after the last run
	err     error         // why it ended, once over is closed; nil after a drain
	// vmLine takes the answers of the CN, and what it says of its VMs; nil: neither is taken.
	vmLine   *vmm.Line
	askedMu  sync.Mutex // protects asked and requests
	asked    map[log.Scope]struct{}
	requests []*feed.Request // what other parts of the server ask the CN, at most maxRequests

	// The rest is touched only in its runs.
	out         *frameWriter
	adding      log.Scope  // that is being sent, since the CN came to want it
	at          log.Cursor // up to which the log was sent or passed over; its cluster is that of the welcome
	held        heldScopes // scopes that the CN holds
	silentUntil log.Seq    // no bookmark before this seq
	// pinned is the head at the start. Until it is reached the interest of
	// then cannot be known; reaching it, unless lookDue is false, is one more look.
	pinned  log.Seq
	lookDue bool
	// met are the pairs of CN and vnet whose underlay NICs were sent on this
	// stream since the CN's NICs on the vnet were last seen to leave, with the
	// head at which: an entry up to there may be the one that brought the CN.
	met            map[projections.Gain]log.Seq
	now            time.Time // when the run began
	unfinished     bool      // the run ended before the end of the log was reached
	bookmarked     log.Seq   // of the last bookmark
	bookmarkedAt   time.Time // when that was sent
	repeatBookmark bool      // send the next bookmark even if one was sent at this seq
	digestsAt      time.Time // when the last digests were sent
}

func newSubscriber(s *parts, conn net.Conn, who matrix.Identity, hello *feed.Hello) *subscriber {
	u := &subscriber{
		s: s, conn: conn, hello: hello, who: who, rights: rightsOf(who), over: make(chan struct{}), repeatBookmark: true,
	}
	self := &member{conn: conn}
	u.task = &task{dispatcher: s.dispatcher, run: u.run}
	u.task.ended = func() {
		u.held.releaseAll()
		s.watcher.leave(self)
		close(u.over)
	}
	self.task, u.self = u.task, self
	u.held = heldScopes{index: s.index, task: u.task, asOf: make(map[log.Scope]log.Seq)}
	u.session = newSession(hello, conn.RemoteAddr().String(), u.task.wake)
	u.out = newFrameWriter(conn, u.task, s.metrics.bytesSent, &s.blocked)
	return u
}

// join lets the subscriber run, at once for the first time.
func (u *subscriber) join() { u.s.watcher.join(u.self, wakeStart) }

// errEnded ends a stream whose connection has ended: the reader knows why.
var errEnded = errors.New("feedserver: the subscriber's connection ended")

// errDrained ends a run that sent the last frame.
var errDrained = errors.New("feedserver: the subscriber was drained")

// run does what there is to do.
func (u *subscriber) run(why reason) outcome {
	ended, err := u.act(why)
	switch {
	case err == nil && !ended && u.unfinished:
		return unfinished
	case err == nil && !ended:
		return idle
	}
	if err != nil && !errors.Is(err, errEnded) {
		// If it is the connection that failed, this does nothing.
		_ = u.drain(feed.DrainFailed, err.Error())
	}
	u.err = err
	u.conn.Close() // ends the reader
	return over
}

// act does it. ended, without an error: the stream ended in order.
func (u *subscriber) act(why reason) (ended bool, err error) {
	u.now = time.Now()
	u.out.now = u.now
	select {
	case <-u.s.draining:
		if why&wakeStart != 0 {
			why |= wakeDrain // it came too late to be among those that are sent away
		}
	default:
	}
	switch {
	case why&wakeEnd != 0:
		return true, errEnded
	case why&wakeDisbelieved != 0:
		return true, u.drain(feed.DrainDisbelieved, u.session.whyDisbelieved())
	case why&wakeReplaced != 0:
		return true, u.drain(feed.DrainReplaced, "a newer session of this CN is here")
	case why&wakeDrain != 0:
		return true, u.drain(feed.DrainShutdown, "this server stops: go to another")
	}
	err = u.proceed(why)
	switch {
	case errors.Is(err, errDrained):
		return true, nil
	case err != nil:
		return true, err
	}
	return false, u.out.flush()
}

func (u *subscriber) proceed(why reason) error {
	if why&wakeStart != 0 {
		if err := u.start(); err != nil {
			return err
		}
	}
	if err := u.progress(why); err != nil {
		return err
	}
	if why&wakeAgain != 0 {
		if err := u.resend(); err != nil {
			return err
		}
	}
	if why&wakeRequest != 0 {
		if err := u.sendRequests(); err != nil {
			return err
		}
	}
	if why&wakeWanted != 0 {
		if err := u.send(&feed.Tell{Seq: log.Seq(u.session.wanted.Load())}); err != nil {
			return err
		}
	}
	if why&wakePing != 0 {
		return u.send(&feed.Pong{Head: u.s.store.Head().Seq})
	}
	return nil
}

// progress sends what there is to know. A tick alone sends a bookmark, if nothing
// concerns the subscriber up to there; if something does, it is woken for that.
func (u *subscriber) progress(why reason) error {
	quiet := u.now.Sub(u.bookmarkedAt) >= quietTime
	if why == wakeTick && !quiet && !u.unfinished {
		if u.skip(); u.lookDue {
			return nil
		}
		return u.bookmark()
	}
	u.repeatBookmark = u.repeatBookmark || quiet // so that both sides know that they are there
	return u.advance()
}

// skip moves the position to where the watcher has read to, if nothing in between
// concerns the subscriber.
func (u *subscriber) skip() (moved bool) {
	if u.lookDue {
		return false
	}
	u.at, moved = u.held.skip(u.at)
	return moved
}

// drain sends the last frame.
func (u *subscriber) drain(reason feed.DrainReason, text string) error {
	if err := u.send(&feed.Drain{At: u.at.Seq, Reason: reason, Text: text}); err != nil {
		return err
	}
	return u.out.flush()
}
