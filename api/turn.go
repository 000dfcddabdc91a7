package api

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"rutter/log"
	"rutter/log/feed"
)

// errEnded ends a stream whose connection has ended: the reader knows why.
var errEnded = errors.New("api: the subscriber's connection ended")

// turn does what there is to do for u. over: it was the last one.
func (u *subscriber) turn(why uint32) (over bool) {
	ended, err := u.act(why)
	if err == nil && !ended {
		return false
	}
	if err != nil && !errors.Is(err, errEnded) {
		// If it is the connection that failed, this does nothing.
		_ = u.drain(feed.DrainFailed, err.Error())
	}
	u.err = err
	u.conn.Close() // ends the reader
	return true
}

// act does it. ended, without an error: the stream ended in order.
func (u *subscriber) act(why uint32) (ended bool, err error) {
	u.now = time.Now()
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
	case why&wakeLied != 0:
		return true, u.drain(feed.DrainDisbelieved, u.session.lied())
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
	return false, u.flush()
}

// errDrained ends a turn that sent the last frame.
var errDrained = errors.New("api: the subscriber was drained")

func (u *subscriber) proceed(why uint32) error {
	if why&wakeStart != 0 {
		if err := u.start(); err != nil {
			return err
		}
	}
	if err := u.progress(why); err != nil {
		return err
	}
	if why&wakeAsk != 0 {
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
		if err := u.send(&feed.Tell{Seq: log.Seq(u.wanted.Load())}); err != nil {
			return err
		}
	}
	if why&wakePing != 0 {
		return u.send(&feed.Pong{Head: u.s.store.Head().Seq})
	}
	return nil
}

// progress sends what there is to know. A tick alone tells the place, if nothing
// concerns the subscriber up to there; if something does, it is woken for that.
func (u *subscriber) progress(why uint32) error {
	quiet := u.now.Sub(u.markedAt) >= feedQuiet
	if why == wakeTick && !quiet && !u.late {
		if u.skip(); u.due {
			return nil
		}
		return u.bookmark()
	}
	u.repeat = u.repeat || quiet // so that both sides know that they are there
	return u.advance()
}

// buffers are those of subscribers that write; an idle one has none.
var (
	buffers  = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}
	encoders = sync.Pool{New: func() any { return log.NewEncoder() }}
)

// send appends a frame to what is to be written.
func (u *subscriber) send(m feed.Message) error {
	if !u.leaves(u.own(m)) {
		return u.withhold(m)
	}
	u.open()
	b, err := feed.Append(u.buf, m)
	if err != nil {
		return err
	}
	u.buf = b
	return u.room(0)
}

// open has a buffer there to append to.
func (u *subscriber) open() {
	if u.buf == nil {
		u.pooled = buffers.Get().(*[]byte)
		u.buf = (*u.pooled)[:0]
	}
}

// release gives the buffer back, for whoever writes next.
func (u *subscriber) release() {
	if b := u.pooled; b != nil && cap(u.buf) <= 2*feedBuffer {
		*b = u.buf
		buffers.Put(b)
	}
	u.buf, u.pooled = nil, nil
}

// room writes what was gathered if n more bytes would make it too much.
func (u *subscriber) room(n int) error {
	if len(u.buf)+n < feedBuffer {
		return nil
	}
	return u.flush()
}

// flush writes what was gathered: at once what the socket takes, the rest while
// another worker goes on. A subscriber that takes nothing for feedWrite is given
// up; it costs its socket's buffer and this one.
func (u *subscriber) flush() error {
	if len(u.buf) == 0 {
		return nil
	}
	u.wrote = u.now
	n, err := u.tryWrite(u.buf)
	if err == nil && n < len(u.buf) {
		u.s.crew.held.Add(1)
		u.s.crew.blocking(u, func() { err = u.writeRest(u.buf[n:]) })
		u.s.crew.held.Add(-1)
	}
	u.s.metrics.bytesSent.Add(float64(len(u.buf)))
	u.release()
	if err != nil {
		u.conn.Close() // nothing more is written to it
		return fmt.Errorf("to the subscriber: %w", err)
	}
	return nil
}

// tryWrite writes what the socket takes without waiting.
func (u *subscriber) tryWrite(b []byte) (n int, err error) {
	if u.raw == nil {
		return 0, nil
	}
	closed := u.raw.Write(func(fd uintptr) bool {
		n, err = syscall.Write(int(fd), b)
		return true
	})
	switch {
	case closed != nil:
		return 0, closed
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR):
		return max(n, 0), nil
	}
	return max(n, 0), err
}

func (u *subscriber) writeRest(b []byte) error {
	if err := u.conn.SetWriteDeadline(time.Now().Add(feedWrite)); err != nil {
		return err
	}
	if _, err := u.conn.Write(b); err != nil {
		return err
	}
	return u.conn.SetWriteDeadline(time.Time{})
}

// drain sends the last frame.
func (u *subscriber) drain(reason feed.DrainReason, text string) error {
	if err := u.send(&feed.Drain{At: u.place, Reason: reason, Text: text}); err != nil {
		return err
	}
	return u.flush()
}
