package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"rutter/agent/zone"
	"rutter/log/feed"
)

// State is what a follower does. See the package comment for the transitions.
type State uint8

// The states of a follower.
const (
	Starting  State = iota // from the cache; no server has answered in this process
	Following              // a server feeds it
	Waiting                // the connection is lost; the next attempt will come
	Resetting              // a server feeds it, and what it sends replaces what is held
)

var stateNames = [...]string{Starting: "starting", Following: "following", Waiting: "waiting", Resetting: "resetting"}

// String returns the state's name.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(text []byte) error {
	for i, name := range stateNames {
		if name == string(text) {
			*s = State(i)
			return nil
		}
	}
	return fmt.Errorf("state %q: want starting, following, waiting or resetting", text)
}

// checkEvery is the number of entries after which the follower checks that the disk
// keeps up.
const checkEvery = 1024

// follower keeps the replica up to date from one server at a time.
type follower struct {
	cfg         *Config
	replica     *replica
	persister   *persister
	incarnation uint64
	watermark   func() feed.Watermark // what to report to a server, as of now
	condition   func() feed.Condition // likewise
	isOnDemand  func(vnet uint32) bool
	reporting   sync.Mutex // held while a watermark is made and handed over
	logger      *slog.Logger
	retryNow    chan struct{} // holds a token when a server may have become reachable
	choose      *zone.Chooser

	mu          sync.Mutex // protects what follows
	state       State
	cancelDial  context.CancelFunc // of the attempt to connect, nil if none runs
	dialing     time.Time          // since when it runs
	reachedAt   time.Time          // when reachable was called last
	server      string             // that feeds it, or that it tries
	conn        *feed.Conn         // nil unless following or resetting
	session     uint64             // of the last connection
	since       time.Time          // of the state
	fedUntil    time.Time          // since when no server feeds it; zero while one does
	attempts    uint64             // since the last bookmark
	bookmark    time.Time          // when the last bookmark arrived
	failure     string             // why the last connection ended
	resetReason string             // of the last reset
	resetAt     time.Time
	moves       uint64 // back to a server of the node's own zone
}

// become changes the state; from lists the states that may come before.
func (f *follower) become(to State, from ...State) {
	for _, s := range from {
		if f.state == s {
			f.state, f.since = to, f.cfg.Now()
			return
		}
	}
	panic(fmt.Sprintf("agent: follower cannot go from %s to %s", f.state, to))
}

// becomeFollowing: a server has welcomed this follower on conn.
func (f *follower) becomeFollowing(conn *feed.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.become(Following, Starting, Waiting)
	f.conn, f.fedUntil = conn, time.Time{}
}

// becomeResetting: the cursor was not usable.
func (f *follower) becomeResetting(reason feed.ResetReason) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.become(Resetting, Following, Resetting)
	f.resetReason, f.resetAt = reason.String(), f.since
}

// becomeCurrent: a bookmark came. It ends a reset and shows that the server works.
func (f *follower) becomeCurrent() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attempts, f.failure, f.bookmark = 0, "", f.cfg.Now()
	if f.state == Resetting {
		f.become(Following, Resetting)
	}
}

// becomeWaiting: the connection, or the attempt at one, ended.
func (f *follower) becomeWaiting(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.become(Waiting, Starting, Following, Waiting, Resetting)
	f.conn, f.failure = nil, err.Error()
	f.attempts++
	if f.fedUntil.IsZero() {
		f.fedUntil = f.since
	}
}

// age is how long no server has fed this node; 0 while one does.
func (f *follower) age() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fedUntil.IsZero() {
		return 0
	}
	return f.cfg.Now().Sub(f.fedUntil)
}

// Run follows until ctx ends.
func (f *follower) Run(ctx context.Context) error {
	var moved movedTo
	for {
		server, conn := moved.server, moved.conn
		if conn == nil {
			server = f.choose.Next(ctx)
		}
		connected, err := f.follow(ctx, server, conn)
		moved = movedTo{}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f.becomeWaiting(err)
		if errors.As(err, &moved) {
			continue // without a pause: the next connection is there already
		}
		wait := f.backoff()
		f.logger.Info("feed ended", "server", server, "error", err, "retry", wait)
		if !connected || errors.Is(err, feed.ErrDrained) {
			f.choose.Failed() // first the same server, if it served; then the next
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		case <-f.retryNow:
			f.resetBackoff()
		}
	}
}

// movedTo ends a connection because there is one to a server of the node's own zone.
type movedTo struct {
	server string
	conn   net.Conn
}

// Error implements error.
func (m movedTo) Error() string { return "the node goes back to its own zone, to " + m.server }

// goHome connects to a server of the node's own zone when the node is to go back to it, and
// then ends the present connection, by end. The node follows meanwhile. It returns when ctx
// ends, or there is nothing more to do.
func (f *follower) goHome(ctx context.Context, end context.CancelCauseFunc) {
	for {
		server := f.choose.Away(ctx)
		if server == "" {
			return
		}
		if !f.settled() {
			continue // whole scopes are coming, and would have to come again
		}
		conn, err := f.connect(ctx, server)
		if err != nil {
			f.logger.Info("the way back to this node's zone is not open yet", "server", server, "error", err)
			f.choose.Refused(server)
			continue
		}
		f.logger.Info("a server of this node's zone is ready: the node goes back to it", "server", server)
		f.mu.Lock()
		f.moves++
		f.mu.Unlock()
		f.choose.Moved(server)
		end(movedTo{server, conn})
		return
	}
}

// settled reports whether a server feeds this node, and no reset is under way.
func (f *follower) settled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state == Following && f.attempts == 0
}

// minDial is how long an attempt runs at least before a report of reachability ends it.
// The kernel repeats a SYN that was sent over a broken path only after a second.
const minDial = 50 * time.Millisecond

// reachable makes a follower that waits, or whose attempt hangs, try again at once: a
// link of this node has a carrier again, or there is a new address.
func (f *follower) reachable() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state != Waiting && f.state != Starting {
		return
	}
	now := f.cfg.Now()
	if now.Sub(f.reachedAt) < f.cfg.BackoffMin {
		return // reports come in bursts; the first attempts after one are close together
	}
	f.reachedAt = now
	if f.cancelDial != nil && now.Sub(f.dialing) > minDial {
		f.cancelDial()
	}
	wake(f.retryNow)
}

// resetBackoff discards the count of failures: the path has changed since.
func (f *follower) resetBackoff() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.become(Waiting, Waiting)
	f.attempts = 0
}

// connect connects to a server within DialTimeout.
func (f *follower) connect(ctx context.Context, server string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.DialTimeout)
	defer cancel()
	return f.cfg.Dialer.Feed(ctx, server)
}

// dial is connect, and a report of reachability ends it.
func (f *follower) dial(ctx context.Context, server string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.mu.Lock()
	f.cancelDial, f.dialing = cancel, f.cfg.Now()
	f.mu.Unlock()
	conn, err := f.connect(ctx, server)
	f.mu.Lock()
	f.cancelDial = nil
	f.mu.Unlock()
	return conn, err
}

// backoff returns how long to wait before the next attempt. The first round over all
// servers is quick, because one of them probably works.
func (f *follower) backoff() time.Duration {
	f.mu.Lock()
	attempts := f.attempts
	f.mu.Unlock()
	d := f.cfg.BackoffMin
	for n := uint64(len(f.cfg.Servers)); n < attempts && d < f.cfg.BackoffMax; n++ {
		d = min(2*d, f.cfg.BackoffMax)
	}
	return d - f.cfg.Jitter(d/2)
}

// follow processes what a server sends. conn is a connection to it; if it is nil, follow
// connects. connected reports whether the server welcomed us and sent a bookmark; err is
// never nil.
func (f *follower) follow(ctx context.Context, server string, conn net.Conn) (connected bool, err error) {
	f.mu.Lock()
	f.server = server
	f.session++
	session := f.session
	f.mu.Unlock()

	if conn == nil {
		if conn, err = f.dial(ctx, server); err != nil {
			return false, err
		}
	}
	cursor, scopes := f.replica.resumePoint()
	hello := &feed.Hello{CN: f.cfg.CN, Incarnation: f.incarnation, Session: session, Cursor: cursor, Scopes: scopes, Abilities: feed.AnswersRequests}
	during, end := context.WithCancel(ctx)
	defer end()
	following, move := context.WithCancelCause(ctx)
	defer move(nil)
	var homing sync.WaitGroup
	if f.cfg.Zone != "" {
		homing.Go(func() { f.goHome(during, move) })
	}
	s := &stream{follower: f, conn: feed.NewConn(conn), ctx: during}
	err = s.conn.Follow(following, hello, s)
	end()
	homing.Wait()
	return s.current, moveOf(following, err)
}

// moveOf returns the error of a connection that ended with err. If a connection to the
// node's own zone was made, that is the reason, whatever else ended the old one meanwhile.
func moveOf(following context.Context, err error) error {
	if moved := (movedTo{}); errors.As(context.Cause(following), &moved) {
		return moved
	}
	return err
}

// report sends the watermark, if a server is connected. The follower and the reconcile
// loop both call it. The watermark is made and handed over in one step, so that an
// older one never replaces a newer one.
func (f *follower) report() {
	f.reporting.Lock()
	defer f.reporting.Unlock()
	f.mu.Lock()
	conn := f.conn
	f.mu.Unlock()
	if conn != nil {
		conn.Watermark(f.watermark())
		conn.Condition(f.condition())
	}
}

func (f *follower) status(s *Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.State, s.Since, s.Server, s.Session, s.Attempts = f.state, f.since, f.server, f.session, f.attempts
	s.Zone, s.Away, s.Moves = f.cfg.Zone, f.state != Waiting && !f.choose.Home(), f.moves
	s.Failure, s.ResetReason, s.ResetAt, s.Bookmark = f.failure, f.resetReason, f.resetAt, f.bookmark
}
