package api

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/rest"
	"rutter/log"
	"rutter/log/feed"
)

// FeedProtocol is the name in the Upgrade header of GET /feed.
const FeedProtocol = "rutter-feed"

// Times and sizes of the feed.
const (
	feedBuffer  = 64 << 10         // bytes gathered before a write
	feedReader  = 128              // bytes read ahead: a watermark
	feedWrite   = 30 * time.Second // for the subscriber to take a write
	feedHello   = 10 * time.Second // for the hello to come
	feedQuiet   = 5 * time.Second  // a bookmark at least this often
	feedSilence = 15 * time.Second // a subscriber pings more often (feed.PingEvery)
)

// Wake-ups of a busy log. A write to a subscriber costs the same for one entry as
// for twenty, so one that was just written to waits for what comes next: the
// longer, the more streams there are. One that was idle is written to at once.
// Up to paceFew streams that is less than what people notice; beyond it the
// processor is what is short.
const (
	pacePerStream = 25 * time.Microsecond // 5 ms at 200, 100 ms at 4,000
	paceSteep     = 75 * time.Microsecond // for each beyond paceFew: 15 ms at 333
	paceSteepMost = 40 * time.Millisecond
	paceMost      = 100 * time.Millisecond
	paceFew       = 200 // streams
	paceFrom      = 50  // streams; below it is of no use
)

func (s *Server) pace() time.Duration { return paceOf(s.streams.Load()) }

func paceOf(streams int64) time.Duration {
	if streams < paceFrom {
		return 0
	}
	n := time.Duration(streams)
	steep := min(paceFew*pacePerStream+max(n-paceFew, 0)*paceSteep, paceSteepMost)
	if n <= paceFew {
		steep = 0
	}
	return min(max(n*pacePerStream, steep), paceMost)
}

// stream counts a stream, or refuses it when there are MaxStreams. done must be
// called when it ends.
func (s *Server) stream() (done func(), err error) {
	if s.streams.Add(1) > MaxStreams {
		s.streams.Add(-1)
		s.guard.CountLimit(guard.LimitStreams)
		return nil, rest.Fail(http.StatusServiceUnavailable, rest.CodeOverloaded, "try another server", "this server serves %d streams already", MaxStreams)
	}
	return func() { s.streams.Add(-1) }, nil
}

// feed answers GET /feed: the connection becomes a stream of frames.
func (s *Server) feed(w http.ResponseWriter, r *http.Request) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), FeedProtocol) || !strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade") {
		w.Header().Set("Upgrade", FeedProtocol)
		return rest.Fail(http.StatusUpgradeRequired, rest.CodeBadRequest, "send Connection: Upgrade and Upgrade: "+FeedProtocol+", or read GET /log", "the feed is a stream of frames, not an answer")
	}
	if err := s.store.Ready(); err != nil {
		return rest.Fail(http.StatusServiceUnavailable, rest.CodeNotReady, "try another server", "this server cannot feed yet: %v", err)
	}
	done, err := s.stream()
	if err != nil {
		return err
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		done()
		return rest.Fail(http.StatusInternalServerError, rest.CodeInternal, "connect without a proxy that speaks HTTP/2", "the connection cannot be upgraded: %v", err)
	}
	if seen, ok := w.(*rest.Recorder); ok {
		seen.Status = http.StatusSwitchingProtocols
	}
	// The request ends here, and with it what net/http keeps for it: an idle
	// subscriber costs one small goroutine, which reads, and its place.
	var first io.Reader = conn
	if early, _ := rw.Reader.Peek(rw.Reader.Buffered()); len(early) > 0 {
		first = io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn)
	}
	who := guard.GrantOf(r).Who
	s.handlers.Go(func() {
		u, reader, err := s.admit(conn, first, who)
		if err != nil {
			s.feedEnded(conn, done, err)
			return
		}
		// A stack that grew for the hello is not kept for the reading.
		s.handlers.Go(func() { s.feedEnded(conn, done, u.read(reader)) })
	})
	return nil
}

// feedEnded ends a connection of the feed, which counted as a stream until now.
func (s *Server) feedEnded(conn net.Conn, done func(), err error) {
	conn.Close()
	done()
	if err != nil {
		s.logger.Info("feed ended", "remote", conn.RemoteAddr().String(), "error", err)
	}
}

// serveFeed runs a stream on an upgraded connection until it ends.
func (s *Server) serveFeed(conn net.Conn) error {
	u, reader, err := s.admit(conn, conn, matrix.Identity{Role: matrix.Local})
	if err != nil {
		return err
	}
	return u.read(reader)
}

// errSentAway: the subscriber was told why it is not served.
var errSentAway = errors.New("api: the subscriber was sent away")

// admit reads the hello and has the subscriber get turns; its frames are then to
// be read. r is conn with what was read of it already.
func (s *Server) admit(conn net.Conn, r io.Reader, who matrix.Identity) (*subscriber, *feed.Reader, error) {
	if err := conn.SetDeadline(time.Now().Add(feedHello)); err != nil {
		return nil, nil, err
	}
	answer := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + FeedProtocol + "\r\n\r\n"
	if _, err := conn.Write([]byte(answer)); err != nil {
		return nil, nil, err
	}
	reader := feed.NewReader(bufio.NewReaderSize(r, feedReader))
	hello, err := readHello(reader)
	if err != nil {
		return nil, nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, nil, err
	}
	u := newSubscriber(s, conn, who, hello)
	if refused := s.admitted(who, u.session.remote, hello); refused != nil {
		err := u.drain(feed.DrainRefused, refused.Error())
		return nil, nil, errors.Join(errSentAway, err)
	}
	if hello.Version != feed.Version || hello.CN.IsZero() {
		err := u.drain(feed.DrainRefused, fmt.Sprintf("hello of version %d for CN %s: this server speaks version %d, and a CN has a UUID", hello.Version, hello.CN, feed.Version))
		return nil, nil, errors.Join(errSentAway, err)
	}
	if !s.cns.add(u.session) {
		err := u.drain(feed.DrainReplaced, "a session of this CN with the same or a later number is here already")
		return nil, nil, errors.Join(errSentAway, err)
	}
	u.connect()
	s.crew.join(u)
	return u, reader, nil
}

// read takes what the subscriber sends until one of both ends the connection, and
// returns when all of the stream has ended; nil after a drain.
func (u *subscriber) read(r *feed.Reader) error {
	err := u.readUp(r)
	u.conn.Close() // so that no turn waits for it
	u.wake(wakeEnd)
	<-u.over
	if u.line != nil {
		u.line.Close()
	}
	u.s.cns.remove(u.session)
	if u.err == errEnded {
		return err
	}
	return u.err
}

func readHello(r *feed.Reader) (*feed.Hello, error) {
	f, err := r.Next()
	if err != nil {
		return nil, fmt.Errorf("hello: %w", err)
	}
	m, err := feed.Decode(f)
	if err != nil {
		return nil, fmt.Errorf("hello: %w", err)
	}
	hello, ok := m.(*feed.Hello)
	if !ok {
		return nil, fmt.Errorf("the first frame is %T, not a hello: %w", m, feed.ErrFrame)
	}
	return hello, nil
}

// readUp takes what the subscriber sends until the connection ends.
func (u *subscriber) readUp(r *feed.Reader) error {
	for {
		if err := u.conn.SetReadDeadline(time.Now().Add(feedSilence)); err != nil {
			return err
		}
		f, err := r.Next()
		if err != nil {
			return fmt.Errorf("from the subscriber: %w", err)
		}
		u.s.cns.heard(u.session)
		m, err := feed.Decode(f)
		if errors.Is(err, feed.ErrUnknownType) {
			continue
		}
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *feed.Watermark:
			if err := u.s.cns.tell(u.session, *m); err != nil {
				u.disbelieve(err)
				<-u.over // the last frame says why
				return err
			}
		case *feed.Condition:
			u.s.judged(u.session, m)
		case *feed.Again:
			u.ask(m)
		case *feed.Ping:
			u.wake(wakePing)
		case *feed.Ring:
			u.told(u.ringsFor(m))
		case *feed.Response, *feed.Inventory:
			u.told(m)
		case *feed.Report:
			// Reports have no reader in this version; they are no error.
		default:
			return fmt.Errorf("%T from a subscriber: %w", m, feed.ErrFrame)
		}
	}
}

// resetReason says why a cursor or a place cannot be served; ok is false for
// errors that say nothing about it.
func resetReason(err error) (reason feed.ResetReason, ok bool) {
	switch {
	case errors.Is(err, log.ErrOtherLog):
		return feed.ResetOtherLog, true
	case errors.Is(err, log.ErrAhead):
		return feed.ResetAhead, true
	case errors.Is(err, log.ErrCompacted):
		return feed.ResetCompacted, true
	case errors.Is(err, log.ErrCorrupt):
		return feed.ResetCorrupt, true
	}
	return 0, false
}
