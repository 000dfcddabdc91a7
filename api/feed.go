package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"rutter/log"
	"rutter/log/feed"
)

// FeedProtocol is the name in the Upgrade header of GET /feed.
const FeedProtocol = "rutter-feed"

// Times and sizes of the feed.
const (
	feedBuffer  = 64 << 10         // bytes gathered before a write
	feedReader  = 512              // bytes read ahead: watermarks and pings are small
	feedWrite   = 30 * time.Second // for the subscriber to take a write
	feedHello   = 10 * time.Second // for the hello to come
	feedQuiet   = 5 * time.Second  // a bookmark at least this often
	feedSilence = 15 * time.Second // a subscriber pings more often (feed.PingEvery)
)

// Wake-ups of a busy log. A write to a subscriber costs the same for one entry as
// for twenty, so one that was just written to waits for what comes next: the
// longer, the more streams there are. One that was idle is written to at once.
const (
	pacePerStream = 25 * time.Microsecond // 5 ms at 200, 25 ms at 1,000
	paceMost      = 100 * time.Millisecond
	paceFrom      = 50 // streams; below it is of no use
)

func (s *Server) pace() time.Duration {
	n := s.streams.Load()
	if n < paceFrom {
		return 0
	}
	return min(time.Duration(n)*pacePerStream, paceMost)
}

// stream counts a stream, or refuses it when there are MaxStreams. done must be
// called when it ends.
func (s *Server) stream() (done func(), err error) {
	if s.streams.Add(1) > MaxStreams {
		s.streams.Add(-1)
		return nil, fail(http.StatusServiceUnavailable, codeOverloaded, "try another server", "this server serves %d streams already", MaxStreams)
	}
	return func() { s.streams.Add(-1) }, nil
}

// feed answers GET /feed: the connection becomes a stream of frames.
func (s *Server) feed(w http.ResponseWriter, r *http.Request) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), FeedProtocol) || !strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade") {
		w.Header().Set("Upgrade", FeedProtocol)
		return fail(http.StatusUpgradeRequired, codeBadRequest, "send Connection: Upgrade and Upgrade: "+FeedProtocol+", or read GET /log", "the feed is a stream of frames, not an answer")
	}
	if err := s.store.Ready(); err != nil {
		return fail(http.StatusServiceUnavailable, codeNotReady, "try another server", "this server cannot feed yet: %v", err)
	}
	done, err := s.stream()
	if err != nil {
		return err
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		done()
		return fail(http.StatusInternalServerError, codeInternal, "connect without a proxy that speaks HTTP/2", "the connection cannot be upgraded: %v", err)
	}
	if seen, ok := w.(*statusWriter); ok {
		seen.status = http.StatusSwitchingProtocols
	}
	// The request ends here, and with it what net/http keeps for it: an idle
	// subscriber costs two small goroutines and its place.
	early, _ := rw.Reader.Peek(rw.Reader.Buffered())
	reader := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn), feedReader)
	s.handlers.Add(1)
	go func() {
		defer s.handlers.Done()
		defer done()
		defer conn.Close()
		if err := s.serveFeed(s.ctx, conn, reader); err != nil {
			s.logger.Info("feed ended", "remote", conn.RemoteAddr().String(), "error", err)
		}
	}()
	return nil
}

// serveFeed runs a stream on an upgraded connection until it ends.
func (s *Server) serveFeed(ctx context.Context, conn net.Conn, buffered *bufio.Reader) error {
	if err := conn.SetDeadline(time.Now().Add(feedHello)); err != nil {
		return err
	}
	answer := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + FeedProtocol + "\r\n\r\n"
	if _, err := conn.Write([]byte(answer)); err != nil {
		return err
	}
	r := feed.NewReader(buffered)
	hello, err := readHello(r)
	if err != nil {
		return err
	}
	sub := newSubscriber(s, conn, hello)
	if hello.Version != feed.Version || hello.CN.IsZero() {
		return sub.drain(feed.DrainRefused, fmt.Sprintf("hello of version %d for CN %s: this server speaks version %d, and a CN has a UUID", hello.Version, hello.CN, feed.Version))
	}
	if !s.cns.add(sub.session) {
		return sub.drain(feed.DrainReplaced, "a session of this CN with the same or a later number is here already")
	}
	defer s.cns.remove(sub.session)
	defer sub.connect()()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	read := make(chan struct{})
	go func() {
		defer close(read)
		cancel(sub.readUp(r))
	}()
	err = sub.run(ctx)
	conn.Close() // ends readUp
	<-read
	return err
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
			u.s.cns.tell(u.session, *m)
		case *feed.Again:
			u.ask(m)
		case *feed.Ping:
			select {
			case u.pings <- struct{}{}:
			default: // one answer stands for both
			}
		case *feed.Response, *feed.Ring, *feed.Inventory:
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
