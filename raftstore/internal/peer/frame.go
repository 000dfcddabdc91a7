package peer

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"

	"rutter/log"
)

// The wire form of a frame, big endian:
//
//	0        4          12     13
//	| length | number   | type | payload |
//
// length counts what follows it.
const (
	frameHeader = 13
	maxFrame    = log.MaxChangeBytes + 1<<10

	// MaxPayload bounds the payload of a frame, in bytes.
	MaxPayload = maxFrame - frameHeader
)

// outgoing is how many frames may wait for the writer of a connection.
const outgoing = 256

// Frame is a request or an answer between peers. A connection carries many requests at
// once; an answer has the number of its request. The two ends agree on the meaning of the
// kinds.
type Frame struct {
	Number  uint64
	Kind    byte
	Payload []byte
}

// appendFrame appends the wire form of f.
func appendFrame(b []byte, f Frame) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(frameHeader-4+len(f.Payload)))
	b = binary.BigEndian.AppendUint64(b, f.Number)
	b = append(b, f.Kind)
	return append(b, f.Payload...)
}

// readFrame reads one frame. It returns io.EOF only between frames.
func readFrame(r *bufio.Reader) (Frame, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return Frame{}, err
	}
	n := binary.BigEndian.Uint32(header[:])
	if n < frameHeader-4 || n > maxFrame {
		return Frame{}, fmt.Errorf("peer frame of %d bytes: %w", n, log.ErrTooLarge)
	}
	f := Frame{Number: binary.BigEndian.Uint64(header[4:]), Kind: header[12], Payload: make([]byte, n-(frameHeader-4))}
	if _, err := io.ReadFull(r, f.Payload); err != nil {
		return Frame{}, fmt.Errorf("peer frame: %w", io.ErrUnexpectedEOF)
	}
	return f, nil
}

// sender writes frames to a connection. Frames that wait together are written in one
// write.
type sender struct {
	conn net.Conn
	out  chan Frame
	done chan struct{} // closed when the connection is closed
	once sync.Once
}

func newSender(conn net.Conn) *sender {
	return &sender{conn: conn, out: make(chan Frame, outgoing), done: make(chan struct{})}
}

// send queues f, and reports whether the connection is still open.
func (s *sender) send(ctx context.Context, f Frame) bool {
	select {
	case s.out <- f:
		return true
	case <-s.done:
		return false
	case <-ctx.Done():
		return false
	}
}

func (s *sender) close() {
	s.once.Do(func() {
		close(s.done)
		s.conn.Close()
	})
}

// run writes until the connection is closed.
func (s *sender) run() {
	defer s.close()
	w := bufio.NewWriterSize(s.conn, 64<<10)
	var b []byte
	for {
		var f Frame
		select {
		case f = <-s.out:
		default:
			if w.Flush() != nil {
				return
			}
			select {
			case f = <-s.out:
			case <-s.done:
				return
			}
		}
		b = appendFrame(b[:0], f)
		if _, err := w.Write(b); err != nil {
			return
		}
	}
}
