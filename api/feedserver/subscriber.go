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

// Reasons why a subscriber is woken.
const (
	wakeStart       = reasonScheduled << (1 + iota)
	wakeLog         // there are new entries for it
	wakeTick        // a tick
	wakePing        // the CN sent a ping
	wakeAgain       // the CN asked for a scope again
	wakeRequest     // there is a request to the CN about its VMs
	wakeWanted      // a barrier waits for its watermark
	wakeDrain       // the server stops
	wakeReplaced    // a newer session of the CN began
	wakeEnd         // the connection ended
	wakeDisbelieved // the CN's report about itself cannot be true
	wakeLagging     // this server is too far behind the log
)

// mustEnd are the reasons that end a stream.
const mustEnd = wakeDrain | wakeReplaced | wakeEnd | wakeDisbelieved | wakeLagging

// runTime bounds a run, so that other subscribers get their turn.
const runTime = 5 * time.Millisecond

// subscriber sends one CN its stream. It keeps only its position in the log. It reads
// only what it can write.
//
// The stream repeats one round: entries from the position on, filtered by the held
// scopes. After an entry that may have changed the CN's interest, the round ends with a
// look at the state, at a head h at or beyond the entry. It sends objects that became
// visible, new scopes as of h, and drops. While it catches up after the start, no scope
// is added: that is done when the pinned head is reached (SAFETY F5).
//
// A scope is dropped where its entries end, also at the start, and not after catching
// up. Else an underlay NIC that is in a scope without entries would be kept for it. Its
// deletion would be missed, and the CN would use it again when its own CN comes onto a
// held vnet.
//
// Invariant at a bookmark at seq p: what was sent, folded, is the state at p of the
// CN's interest at p. So between a look and its head there is no bookmark, because the
// result of the look is of the head.
type subscriber struct {
	s       *parts
	conn    net.Conn
	session *session
	hello   *feed.Hello // its scopes are forgotten after the start
	who     matrix.Identity
	rights  frameRights
	task    *task
	self    *member       // in the watcher
	over    chan struct{} // closed after the last run
	err     error         // why it ended, once over is closed; nil after a drain
	// vmConn takes the CN's answers and reports about its VMs; nil: they are ignored.
	vmConn   *vmm.Conn
	askedMu  sync.Mutex // protects asked and requests
	asked    map[log.Scope]struct{}
	requests []*feed.Request // requests of other parts of the server to the CN, at most maxRequests

	// The rest is used only in runs of its task.
	out         *frameWriter
	adding      log.Scope  // the scope that is being sent because it entered the interest
	at          log.Cursor // the position: up to here the log was sent or skipped; its cluster is that of the welcome
	held        heldScopes // scopes that the CN holds
	silentUntil log.Seq    // no bookmark before this seq
	// pinned is the head at the start. Before it is reached, the interest at that head
	// cannot be known. When it is reached and lookDue is true, one more look is made.
	pinned  log.Seq
	lookDue bool
	// met are the pairs of CN and vnet whose underlay NICs were sent on this stream
	// since the CN's NICs on the vnet last left. The value is the head at which they
	// were sent: an entry up to it may be the one that brought the CN.
	met            map[projections.Gain]log.Seq
	now            time.Time // time when the run began
	unfinished     bool      // the run ended before the end of the log was reached
	bookmarked     log.Seq   // of the last bookmark
	bookmarkedAt   time.Time // when that was sent
	repeatBookmark bool      // send the next bookmark even if one was sent at this seq
	digestsAt      time.Time // time when the last digests were sent
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
	u.session = newSession(hello, conn.RemoteAddr().String(), u.task.wake, s.tracker.NewNode())
	u.out = newFrameWriter(conn, u.task, s.metrics.bytesSent, &s.blocked)
	return u
}

// join adds the subscriber to the watcher and starts its first run.
func (u *subscriber) join() { u.s.watcher.join(u.self, wakeStart) }

// errEnded ends a stream whose connection has ended; the reader has the reason.
var errEnded = errors.New("feedserver: the subscriber's connection ended")

// errDrained ends a run that sent the last frame.
var errDrained = errors.New("feedserver: the subscriber was drained")

// run does what is due.
func (u *subscriber) run(why reason) outcome {
	ended, err := u.act(why)
	switch {
	case err == nil && !ended && u.unfinished:
		return unfinished
	case err == nil && !ended:
		return idle
	}
	if err != nil && !errors.Is(err, errEnded) {
		// If the connection itself failed, this does nothing.
		_ = u.drain(feed.DrainFailed, err.Error())
	}
	u.err = err
	u.conn.Close() // ends the reader
	return over
}

// act is run without the handling of errors. ended without an error: the stream ended
// in order.
func (u *subscriber) act(why reason) (ended bool, err error) {
	u.now = time.Now()
	u.out.now = u.now
	select {
	case <-u.s.draining:
		if why&wakeStart != 0 {
			why |= wakeDrain // it came too late to be sent away with the others
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
	case why&(wakeLagging|wakeStart) != 0:
		if err := u.s.lagging(); err != nil {
			u.s.metrics.lagging.Inc()
			return true, u.drain(feed.DrainBehind, err.Error())
		}
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

// progress sends what is new. At a tick it only sends a bookmark if nothing concerns
// the subscriber up to there. Else another wake-up will send that.
func (u *subscriber) progress(why reason) error {
	quiet := u.now.Sub(u.bookmarkedAt) >= quietTime
	if why == wakeTick && !quiet && !u.unfinished {
		if u.skip(); u.lookDue {
			return nil
		}
		return u.bookmark()
	}
	u.repeatBookmark = u.repeatBookmark || quiet // a sign of life in both directions
	return u.advance()
}

// skip moves the position to where the watcher has read to, if no entry between
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
