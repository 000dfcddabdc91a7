package network

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// state is what a host knows of a connection.
type state int

const (
	open   state = iota
	gone         // the host crashed: its operations do nothing, and the other end is not told
	buried       // the host began anew: operations fail, and segments are answered by a reset
)

// conn is one end of a connection. Net.mu guards all of it.
type conn struct {
	n      *Net
	number uint64
	host   *Host
	peer   *conn
	in     *stream // the peer's out
	out    *stream
	local  *net.TCPAddr
	remote *net.TCPAddr

	state      state
	halfOpen   bool // nothing arrives any more, either way
	closed     bool
	readClosed bool
	broken     bool          // a reset came, or the path was dead for Silence
	err        syscall.Errno // what the next operation reports of that
	silent     time.Time     // since when the path is dead, in either direction
	readBy     time.Time
	writeBy    time.Time
}

// connect returns the two ends of a new connection.
func (n *Net) connect(from, to *Host, port int) (client, server *conn) {
	there, back := &stream{rng: n.draw(from.name, to.name)}, &stream{rng: n.draw(to.name, from.name)}
	local, remote := &net.TCPAddr{IP: from.ip, Port: from.nextPort()}, &net.TCPAddr{IP: to.ip, Port: port}
	n.counts["connections"]++
	number := uint64(n.counts["connections"])
	client = &conn{n: n, number: 2 * number, host: from, in: back, out: there, local: local, remote: remote}
	server = &conn{n: n, number: 2*number + 1, host: to, in: there, out: back, local: remote, remote: local}
	client.peer, server.peer = server, client
	n.ends[client], n.ends[server] = struct{}{}, struct{}{}
	return client, server
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	for {
		now := time.Now()
		at := earlier(c.readBy, c.expires())
		switch {
		case c.closed || c.state == buried:
			return 0, c.failed("read", net.ErrClosed)
		case c.host.held:
			at = time.Time{}
		case passed(c.readBy, now):
			return 0, c.failed("read", os.ErrDeadlineExceeded)
		case c.state == gone:
			at = c.readBy
		case c.readClosed:
			return 0, io.EOF
		default:
			c.in.settle(now)
			if c.in.ready > 0 || len(b) == 0 {
				read := c.in.take(b)
				c.acknowledge()
				return read, nil
			}
			if err := c.sick(now); err != 0 {
				return 0, c.failed("read", os.NewSyscallError("read", err))
			}
			if c.in.fin || c.broken {
				return 0, io.EOF
			}
			at = earlier(at, c.in.next())
		}
		c.in.readers.wait(c.n, at, nil)
	}
}

// acknowledge lets the sender have what room there is.
func (c *conn) acknowledge() {
	if c.path() != lost && c.in.unacked != c.in.size {
		c.in.unacked = c.in.size
		c.in.writers.wakeAll()
	}
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	written := 0
	for {
		now := time.Now()
		switch {
		case c.closed || c.state == buried:
			return written, c.failed("write", net.ErrClosed)
		case passed(c.writeBy, now) && !c.host.held:
			return written, c.failed("write", os.ErrDeadlineExceeded)
		case c.state == gone:
			return written + len(b), nil
		}
		if err := c.sick(now); err != 0 {
			return written, c.failed("write", os.NewSyscallError("write", err))
		}
		if c.broken || c.out.ended {
			return written, c.failed("write", os.NewSyscallError("write", syscall.EPIPE))
		}
		for len(b) > 0 && c.out.unacked < Buffer {
			part := b[:min(len(b), segment, Buffer-c.out.unacked)]
			c.send(part, false, now)
			b, written = b[len(part):], written+len(part)
		}
		if len(b) == 0 {
			return written, nil
		}
		c.n.counts["writes that waited"]++
		c.out.writers.wait(c.n, earlier(earlier(c.writeBy, c.expires()), c.in.rst), nil)
	}
}

// send puts bytes, or the end, on their way.
func (c *conn) send(b []byte, fin bool, now time.Time) {
	out := c.out
	c.n.counts["segments"]++
	c.n.counts["bytes"] += len(b)
	way := c.path()
	if way == lost || !c.peer.forgot() {
		out.push(b)
	} else if fin {
		return
	}
	m := mark{n: len(b), fin: fin}
	if tail := len(out.marks) - 1; way == arrives && (tail < 0 || !out.marks[tail].due.IsZero()) {
		m.due = c.arrival(now)
	} else if way == lost && out.since.IsZero() {
		out.since = now
	}
	if tail := len(out.marks) - 1; tail >= 0 && out.marks[tail].due.Equal(m.due) && !out.marks[tail].fin {
		out.marks[tail].n += m.n
		out.marks[tail].fin = fin
	} else {
		out.marks = append(out.marks, m)
	}
	if !m.due.IsZero() {
		c.announce(m.due, now)
	}
}

// arrival returns when a segment arrives that is sent at a time.
func (c *conn) arrival(at time.Time) time.Time {
	due := at.Add(c.n.travel(c.n.link(c.host.name, c.peer.host.name), c.out.rng, c.host == c.peer.host))
	if due.Before(c.out.last) {
		due = c.out.last
	}
	c.out.last = due
	return due
}

// announce tells the other end when something arrives there, which may be answered by a reset.
func (c *conn) announce(due, now time.Time) {
	if c.peer.forgot() {
		c.refused(due)
		c.out.marks = nil
		return
	}
	if due.After(now) {
		c.out.readers.by(due)
	} else {
		c.out.readers.wakeAll()
	}
}

// forgot reports whether an end answers what it receives by a reset.
func (c *conn) forgot() bool { return c.closed || c.state != open || c.broken }

// refused lets the other end answer by a reset what arrives there at a time.
func (c *conn) refused(at time.Time) {
	if c.peer.path() == lost {
		return
	}
	if c.host != c.peer.host {
		at = at.Add(Base + c.n.link(c.peer.host.name, c.host.name).Delay)
	}
	c.in.reset(at)
	c.in.readers.by(at)
	c.out.writers.by(at)
	c.n.counts["resets"]++
}

// sick returns the error that a connection has and did not report yet.
func (c *conn) sick(now time.Time) syscall.Errno {
	c.check(now)
	err := c.err
	c.err = 0
	return err
}

// check finds out whether a connection ended otherwise than by Close.
func (c *conn) check(now time.Time) {
	switch {
	case c.broken:
	case passed(c.in.rst, now):
		if c.broken, c.err = true, syscall.ECONNRESET; c.in.fin {
			c.err = syscall.EPIPE
		}
	case passed(c.expires(), now):
		c.broken, c.err = true, syscall.ETIMEDOUT
		c.n.counts["connections timed out"]++
	}
}

// expires returns when a connection ends since its path is dead; zero: it is not.
func (c *conn) expires() time.Time {
	if c.silent.IsZero() || c.broken {
		return time.Time{}
	}
	return c.silent.Add(Silence)
}

// Close implements net.Conn. What was written arrives, and then the end; if something was not
// read, a reset arrives instead of the end, as of a kernel.
func (c *conn) Close() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.closed {
		return c.failed("close", net.ErrClosed)
	}
	if c.state == open {
		c.leave()
	}
	c.closed = true
	c.wake()
	c.forget()
	return nil
}

// leave sends what a kernel sends when a socket is closed.
func (c *conn) leave() {
	now := time.Now()
	c.in.settle(now)
	if c.check(now); c.broken {
		return
	}
	if c.in.ready > 0 {
		c.n.counts["connections closed with something unread"]++
		c.out.ended = true
		if c.path() == arrives {
			c.peer.in.reset(c.arrival(now))
			c.peer.wake()
		}
	} else if !c.out.ended {
		c.out.ended = true
		c.send(nil, true, now)
	}
	var data int
	for _, m := range c.in.marks {
		data += m.n
	}
	if data > 0 && c.peer.path() == arrives {
		c.peer.refused(c.in.last)
	}
	c.in.drop(now)
	c.in.ready, c.in.size, c.in.unacked = 0, 0, 0
	c.in.writers.wakeAll()
}

// forget drops a connection that neither end has any more.
func (c *conn) forget() {
	if (c.closed || c.state == buried) && (c.peer.closed || c.peer.state == buried) {
		delete(c.n.ends, c)
		delete(c.n.ends, c.peer)
	}
}

// CloseWrite sends the end; reading goes on.
func (c *conn) CloseWrite() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.closed || c.state == buried {
		return c.failed("close", net.ErrClosed)
	}
	if c.state == open && !c.broken && !c.out.ended {
		c.out.ended = true
		c.send(nil, true, time.Now())
		c.out.writers.wakeAll()
	}
	return nil
}

// CloseRead lets reads return io.EOF; the other end is not told.
func (c *conn) CloseRead() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.closed || c.state == buried {
		return c.failed("close", net.ErrClosed)
	}
	c.readClosed = true
	c.in.readers.wakeAll()
	return nil
}

// LocalAddr implements net.Conn. It is a *net.TCPAddr.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn. It is a *net.TCPAddr.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error { return c.setDeadlines(&t, &t) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(&t, nil) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(nil, &t) }

func (c *conn) setDeadlines(read, write *time.Time) error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.closed || c.state == buried {
		return c.failed("set", net.ErrClosed)
	}
	if read != nil {
		c.readBy = *read
		c.in.readers.wakeAll()
	}
	if write != nil {
		c.writeBy = *write
		c.out.writers.wakeAll()
	}
	return nil
}

func (c *conn) wake() {
	c.in.readers.wakeAll()
	c.out.writers.wakeAll()
}

func (c *conn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

// passed reports whether a time that is set has come.
func passed(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }
