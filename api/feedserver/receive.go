package feedserver

import (
	"bufio"
	"errors"
	"fmt"
	"time"

	"rutter/api/auth/audit"
	"rutter/api/auth/matrix"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

const (
	quietTime   = 5 * time.Second  // the longest time between two bookmarks
	silenceTime = 15 * time.Second // without a frame, the connection ends; subscribers ping more often (feed.PingEvery)
)

// frames reads what a subscriber sends.
type frames struct {
	buffer *bufio.Reader // of the connection
	reader *feed.Reader  // of buffer
}

// receive handles the subscriber's frames until one side ends the connection. It calls end
// when the stream is over: with nil after a drain.
//
// It waits for frames in a goroutine that has done nothing else, and handles what has come
// in it: then it goes on in a new one. So an idle subscriber has a stack of the least size,
// of which there may be ten thousand, and not the one that grew for a frame, which is twice
// as large.
func (u *subscriber) receive(r *frames, end func(error)) {
	err := u.await(r)
	if err == nil {
		err = u.receiveFrames(r)
	}
	if err == nil {
		u.s.running.Go(func() { u.receive(r, end) })
		return
	}
	end(u.finish(err))
}

// await waits until the subscriber sends something. Its stack is kept all the time: it calls
// nothing that needs a large one.
func (u *subscriber) await(r *frames) error {
	if err := u.bound(); err != nil {
		return err
	}
	if _, err := r.buffer.Peek(1); err != nil {
		return fmt.Errorf("from the subscriber: %w", err)
	}
	return nil
}

// bound bounds how long the next frame may take.
func (u *subscriber) bound() error { return u.conn.SetReadDeadline(time.Now().Add(silenceTime)) }

// finish ends the stream after an error of receiving, and returns why it is over; nil after
// a drain.
func (u *subscriber) finish(err error) error {
	u.conn.Close() // so that no run waits for the socket
	u.task.wake(wakeEnd)
	<-u.over
	if u.vmConn != nil {
		u.vmConn.Close()
	}
	u.s.sessions.remove(u.session)
	if errors.Is(u.err, errEnded) {
		return err
	}
	return u.err
}

// receiveFrames handles the frame that has begun to come, and those that came with it.
func (u *subscriber) receiveFrames(r *frames) error {
	for {
		if err := u.bound(); err != nil {
			return err
		}
		f, err := r.reader.Next()
		if err != nil {
			return fmt.Errorf("from the subscriber: %w", err)
		}
		if err := u.handle(f); err != nil || r.buffer.Buffered() == 0 {
			return err
		}
	}
}

// handle handles one frame.
func (u *subscriber) handle(f feed.Frame) error {
	u.s.sessions.noteFrame(u.session)
	m, err := feed.Decode(f)
	if errors.Is(err, feed.ErrUnknownType) {
		return nil
	}
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *feed.Watermark:
		if err := u.s.sessions.take(u.session, *m); err != nil {
			u.disbelieve(err)
			<-u.over // the last frame has the reason
			return err
		}
	case *feed.Condition:
		u.s.sessions.noteCondition(u.session, m, u.s.logger)
	case *feed.Again:
		u.ask(m)
	case *feed.Ping:
		u.task.wake(wakePing)
	case *feed.Ring:
		u.tellVMMs(u.ringsFor(m))
	case *feed.Response, *feed.Inventory:
		u.tellVMMs(m)
	case *feed.Report:
		// This version does not use Reports; they are not an error.
	default:
		return fmt.Errorf("%T from a subscriber: %w", m, feed.ErrFrame)
	}
	return nil
}

// disbelieve records that a CN's report about itself cannot be true, and ends its
// session with a frame that says so.
func (u *subscriber) disbelieve(untrue error) {
	u.s.metrics.disbelieved.Inc()
	u.s.logger.Warn("a compute node said of itself what cannot be: its session ends, and counts for no barrier", "cn", u.hello.CN, "remote", u.session.remote, "why", untrue)
	u.s.audit(audit.Record{
		Event: audit.Disbelieved, Actor: u.who.Actor(), Serial: u.who.Serial, Remote: u.session.remote,
		Asked: "watermark of CN " + u.hello.CN.String(), Why: untrue.Error(),
	})
	u.task.wake(wakeDisbelieved)
}

// ask records a scope that the subscriber asks for again. The reading goroutine calls
// it.
func (u *subscriber) ask(m *feed.Again) {
	u.askedMu.Lock()
	if u.asked == nil {
		u.asked = make(map[log.Scope]struct{})
	}
	if len(u.asked) < feed.MaxScopes {
		u.asked[m.Scope] = struct{}{}
	}
	u.askedMu.Unlock()
	u.s.metrics.mismatches.Inc()
	u.s.logger.Error("a compute node holds something else than the log says: sent anew", "cn", u.hello.CN, "scope", m.Scope, "at", m.At)
	u.task.wake(wakeAgain)
}

// ringsFor removes from a CN's rings those of VMMs that the log has on another CN.
func (u *subscriber) ringsFor(m *feed.Ring) *feed.Ring {
	if u.who.Role != matrix.CN {
		return m
	}
	kept := &feed.Ring{}
	u.s.store.View(func(state *projections.State, _ log.Cursor) {
		for _, id := range m.VMMs {
			rec, known := state.Get(log.KindVMM, id.String())
			if !known || rec.Object.(*log.VMM).SledID == u.who.UUID {
				kept.VMMs = append(kept.VMMs, id)
			}
		}
	})
	if n := len(m.VMMs) - len(kept.VMMs); n > 0 {
		_ = u.s.refuse(u.session.remote, &matrix.Refusal{Who: u.who, What: fmt.Sprintf("ring for %d VMMs", n), Missing: "they are on other CNs"})
	}
	return kept
}
