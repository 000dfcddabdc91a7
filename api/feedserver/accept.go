package feedserver

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"rutter/api/auth/matrix"
	"rutter/log/feed"
)

// Protocol is the name in the Upgrade header of GET /feed.
const Protocol = "rutter-feed"

const (
	readerBytes = 128              // read ahead: enough for a watermark
	helloTime   = 10 * time.Second // to receive the hello
)

// errSentAway: the subscriber was sent the reason why it is not served.
var errSentAway = errors.New("feedserver: the subscriber was sent away")

// Serve serves the stream on a connection, whose request asked for Protocol, to the CN
// in its hello. who is the identity of the connection. early is what was already read
// of the connection after the request. ended is called when the stream is over. Serve
// does not block.
//
// An idle subscriber costs one small goroutine, which reads, and its position.
func (s *Server) Serve(conn net.Conn, early []byte, who matrix.Identity, ended func()) {
	end := func(err error) {
		conn.Close()
		ended()
		if err != nil {
			s.logger.Info("feed ended", "remote", conn.RemoteAddr().String(), "error", err)
		}
	}
	s.running.Go(func() {
		u, reader, err := s.accept(conn, early, who)
		if err != nil {
			end(err)
			return
		}
		// A new goroutine: the stack that grew for the hello is not kept for reading.
		s.running.Go(func() { u.receive(reader, end) })
	})
}

// accept reads the hello and starts the subscriber. The caller must then receive its
// frames.
func (s *parts) accept(conn net.Conn, early []byte, who matrix.Identity) (*subscriber, *frames, error) {
	if err := conn.SetDeadline(time.Now().Add(helloTime)); err != nil {
		return nil, nil, err
	}
	answer := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + Protocol + "\r\n\r\n"
	if _, err := conn.Write([]byte(answer)); err != nil {
		return nil, nil, err
	}
	var r io.Reader = conn
	if len(early) > 0 {
		r = io.MultiReader(bytes.NewReader(early), conn)
	}
	reader := &frames{buffer: bufio.NewReaderSize(r, readerBytes)}
	reader.reader = feed.NewReader(reader.buffer)
	hello, err := readHello(reader.reader)
	if err != nil {
		return nil, nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, nil, err
	}
	u := newSubscriber(s, conn, who, hello)
	if refused := s.mayFollow(who, u.session.remote, hello); refused != nil {
		err := u.drain(feed.DrainRefused, refused.Error())
		return nil, nil, errors.Join(errSentAway, err)
	}
	if hello.Version != feed.Version || hello.CN.IsZero() {
		err := u.drain(feed.DrainRefused, fmt.Sprintf("hello of version %d for CN %s: this server speaks version %d, and a CN has a UUID", hello.Version, hello.CN, feed.Version))
		return nil, nil, errors.Join(errSentAway, err)
	}
	if !s.sessions.add(u.session) {
		err := u.drain(feed.DrainReplaced, "a session of this CN with the same or a later number is here already")
		return nil, nil, errors.Join(errSentAway, err)
	}
	u.task.concerned, u.task.sample = u.session.node.Concerns, u.session.sample
	u.connectVMMs()
	u.join()
	return u, reader, nil
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

// mayFollow decides whether an identity may send a hello for this CN.
func (s *parts) mayFollow(who matrix.Identity, remote string, hello *feed.Hello) error {
	answer, refusal := matrix.Decide(who, "follow the feed of CN "+hello.CN.String(), matrix.Find("feed up hello"))
	if refusal == nil && (answer == matrix.Allow || who.UUID == hello.CN) {
		return nil
	}
	if refusal == nil {
		refusal = &matrix.Refusal{Who: who, What: "follow the feed of CN " + hello.CN.String(), Missing: "it takes the certificate of that CN"}
	}
	return s.refuse(remote, refusal)
}
