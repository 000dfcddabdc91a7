package evloop

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrWait: TryRead has nothing to read, or TryWrite has no room. It is not lasting.
var ErrWait = errors.New("evloop: it would have to wait")

// Handler is called in the goroutine of a loop, and must not wait. false ends Serve.
type Handler interface {
	// Readable reads with TryRead what has arrived. The loop calls it for each
	// connection on which something has, and then Flush for each.
	Readable() (more bool)
	// Flush writes with TryWrite what Readable made: a peer that sleeps is woken once
	// for all of its connections, and has not yet been when the first is written.
	Flush() (more bool)
}

// Conn is a TCP connection whose descriptor is ours alone. It implements net.Conn.
type Conn struct {
	fd            int
	loop          *loop
	local, remote net.Addr

	woken chan struct{} // from the loop: what was waited for is there
	// What the loop does at the next event; loop.mu protects both.
	watched bool    // fd is in the loop's epoll
	handler Handler // nil: it wakes the user

	// Of the user, or of the handler while it runs.
	err                   error // lasting
	readUntil, writeUntil time.Time

	mu       sync.Mutex // protects what follows
	closed   bool       // Close was called
	released bool       // fd is closed
}

// Serve lets a loop call h whenever something can be read, and returns when one of h's
// methods returned false, or the connection has ended: then a Read returns why.
func (c *Conn) Serve(h Handler) {
	if c.isClosed() || !c.loop.watch(c, unix.EPOLLIN, h) {
		return
	}
	// Close shuts the connection down, which is an event.
	<-c.woken
}

// TryRead reads what is there: io.EOF at the end, ErrWait if there is nothing.
func (c *Conn) TryRead(b []byte) (int, error) {
	if c.err != nil {
		return 0, c.ended(c.err)
	}
	for {
		n, err := syscall.Read(c.fd, b)
		switch {
		case n > 0:
			return n, nil
		case err == nil:
			c.err = io.EOF
			return 0, c.ended(io.EOF)
		case err == syscall.EAGAIN:
			return 0, ErrWait
		case err != syscall.EINTR:
			c.err = os.NewSyscallError("read", err)
			return 0, c.ended(c.err)
		}
	}
}

// TryWrite writes what there is room for; with less than all it returns ErrWait.
func (c *Conn) TryWrite(b []byte) (written int, err error) {
	for written < len(b) {
		n, err := syscall.Write(c.fd, b[written:])
		switch {
		case n > 0:
			written += n
		case err == syscall.EAGAIN:
			return written, ErrWait
		case err != syscall.EINTR:
			c.err = os.NewSyscallError("write", err)
			return written, c.ended(c.err)
		}
	}
	return written, nil
}

// ended returns err, or net.ErrClosed if we ended the connection.
func (c *Conn) ended(err error) error {
	if c.isClosed() {
		return net.ErrClosed
	}
	return err
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	for {
		if c.isClosed() {
			return 0, net.ErrClosed
		}
		n, err := c.TryRead(b)
		if err == ErrWait {
			err = c.wait(unix.EPOLLIN, c.readUntil)
			if err == nil {
				continue
			}
		}
		return n, err
	}
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (written int, err error) {
	for {
		if c.isClosed() {
			return written, net.ErrClosed
		}
		n, err := c.TryWrite(b[written:])
		written += n
		if err == ErrWait {
			err = c.wait(unix.EPOLLOUT, c.writeUntil)
			if err == nil {
				continue
			}
		}
		return written, err
	}
}

// wait returns when an event may have come, os.ErrDeadlineExceeded at a time that is not
// zero.
func (c *Conn) wait(events uint32, until time.Time) error {
	var late <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		late = t.C
	}
	if !c.loop.watch(c, events|unix.EPOLLONESHOT, nil) {
		return net.ErrClosed
	}
	select {
	case <-c.woken:
		return nil
	case <-late:
	}
	if !c.loop.forget(c) {
		<-c.woken // it was on its way
	}
	return os.ErrDeadlineExceeded
}

func (c *Conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Close ends the connection both ways; its user then calls Release.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	if c.released {
		return nil
	}
	// What a peer that has ended already makes of it does not matter.
	_ = unix.Shutdown(c.fd, unix.SHUT_RDWR)
	return nil
}

// SetLinger is that of *net.TCPConn: with 0, Release drops what was not sent and resets
// the connection.
func (c *Conn) SetLinger(seconds int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.released {
		return net.ErrClosed
	}
	linger := unix.Linger{Onoff: 1, Linger: int32(seconds)}
	if seconds < 0 {
		linger = unix.Linger{}
	}
	return unix.SetsockoptLinger(c.fd, unix.SOL_SOCKET, unix.SO_LINGER, &linger)
}

// Release closes the descriptor. The user calls it once, last.
func (c *Conn) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed, c.released = true, true
	_ = unix.Close(c.fd)
	c.loop.users.Add(-1)
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn. The user calls it, as the following two.
func (c *Conn) SetDeadline(t time.Time) error { c.readUntil, c.writeUntil = t, t; return nil }

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { c.readUntil = t; return nil }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { c.writeUntil = t; return nil }
