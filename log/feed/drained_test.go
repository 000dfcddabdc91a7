package feed

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// halfClosed is a connection to a server that reads no more after the hello, as TCP has it:
// a write fails, and what the server sent before arrives, the drain after a while.
type halfClosed struct {
	net.Conn
	writes int
	last   []byte // what the server sent last
	ended  chan struct{}
}

func (c *halfClosed) Write(b []byte) (int, error) {
	if c.writes++; c.writes > 1 {
		return 0, errReset
	}
	return len(b), nil
}

var errReset = errors.New("connection reset by peer")

func (c *halfClosed) Read(b []byte) (int, error) {
	select {
	case <-time.After(FinalRead / 2):
	case <-c.ended:
		return 0, net.ErrClosed
	}
	if len(c.last) == 0 {
		<-c.ended // a server that says no more
		return 0, net.ErrClosed
	}
	n := copy(b, c.last)
	c.last = c.last[n:]
	return n, nil
}

func (c *halfClosed) Close() error {
	select {
	case <-c.ended:
	default:
		close(c.ended)
	}
	return nil
}

func (c *halfClosed) SetReadDeadline(time.Time) error  { return nil }
func (c *halfClosed) SetWriteDeadline(time.Time) error { return nil }

// TestDrainBehindAFailedWrite: a drain is what ended a stream, also if a write found out first
// that the server has closed it. A server that sent none ends it with the error of the write.
func TestDrainBehindAFailedWrite(t *testing.T) {
	drain, err := Append(nil, &Drain{Reason: DrainShutdown})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		last []byte
		want error
	}{{drain, ErrDrained}, {nil, errReset}} {
		synctest.Test(t, func(t *testing.T) {
			conn := NewConn(&halfClosed{last: c.last, ended: make(chan struct{})})
			conn.Watermark(Watermark{})
			began := time.Now()
			if err := conn.Follow(t.Context(), new(Hello), new(recorder)); !errors.Is(err, c.want) || errors.Is(err, io.EOF) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if took := time.Since(began); took > FinalRead {
				t.Errorf("it took %v, want at most %v", took, FinalRead)
			}
		})
	}
}
