package varp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// maxID is the highest id that a request of ours has: illumos uses 1 to
// 2^31-1, and a server may not like more.
const maxID = 1<<31 - 1

// call is one request under way.
type call struct {
	want  Op
	reply chan reply // with room for the one reply, so that nobody waits for an asker who left
}

type reply struct {
	body []byte
	err  error
}

// clientConn is one connection of a Client. A goroutine writes what askers
// leave in out, another reads replies and hands them to the askers by id.
type clientConn struct {
	nc      net.Conn      // its deadlines may be set by anybody
	silence time.Duration // how long the server may be silent while it owes a reply
	slots   chan struct{} // one token for each call in pending
	wake    chan struct{} // with room for one: out has something
	done    chan struct{} // closed when err is set

	mu       sync.Mutex
	err      error // why it ended
	answered bool  // at least one good reply came
	retiring bool  // it ends with what is pending
	out      []byte
	pending  map[uint32]*call // those whose asker gave up included
	lastID   uint32
}

func newClientConn(nc net.Conn, maxPending int, silence time.Duration) *clientConn {
	return &clientConn{
		nc:      nc,
		silence: silence,
		slots:   make(chan struct{}, maxPending),
		wake:    make(chan struct{}, 1),
		done:    make(chan struct{}),
		pending: make(map[uint32]*call),
	}
}

// ended returns why the connection ended, nil if it has not, and whether it
// was of any use.
func (c *clientConn) ended() (cause error, answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err, c.answered
}

// roundTrip sends a request and returns the body of its reply.
func (c *clientConn) roundTrip(ctx context.Context, want Op, encode encoder) ([]byte, error) {
	select {
	case c.slots <- struct{}{}:
	case <-c.done:
		cause, _ := c.ended()
		return nil, cause
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	asked := &call{want: want, reply: make(chan reply, 1)}
	if err := c.send(asked, encode); err != nil {
		return nil, err
	}
	select {
	case got := <-asked.reply:
		return got.body, got.err
	case <-ctx.Done():
		return nil, ctx.Err() // the reply, when it comes, frees the slot
	}
}

// send registers asked and leaves its bytes for the writer. The caller holds a
// slot, which from here on belongs to the entry in pending.
func (c *clientConn) send(asked *call, encode encoder) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if c.retiring {
		return errRetired
	}
	id := c.freeIDLocked()
	c.pending[id] = asked
	c.out = encode(c.out, id)
	if len(c.pending) == 1 { // the server owes a reply from now on
		_ = c.nc.SetReadDeadline(time.Now().Add(c.silence)) // a dead socket is the reader's to report
	}
	select {
	case c.wake <- struct{}{}:
	default: // the writer has been woken and not come yet
	}
	return nil
}

// freeIDLocked returns the next id that no pending call has. There is one, as
// slots bounds the calls.
func (c *clientConn) freeIDLocked() uint32 {
	for {
		c.lastID = c.lastID%maxID + 1
		if c.pending[c.lastID] == nil {
			return c.lastID
		}
	}
}

// writeRequests writes what askers leave, all of it at once, until the
// connection ends.
func (c *clientConn) writeRequests() {
	var spare []byte
	for {
		select {
		case <-c.wake:
		case <-c.done:
			return
		}
		c.mu.Lock()
		batch := c.out
		c.out = spare[:0]
		c.mu.Unlock()
		if err := c.nc.SetWriteDeadline(time.Now().Add(c.silence)); err != nil {
			c.fail(err)
			return
		}
		if _, err := c.nc.Write(batch); err != nil {
			c.fail(fmt.Errorf("write: %w", err))
			return
		}
		spare = batch
	}
}

// readReplies hands out replies until the connection ends. Order is free.
func (c *clientConn) readReplies() {
	// portolan does not count a LOG_ACK's status as part of what was asked for.
	const limit = MaxBody + statusSize
	in := make([]byte, HeaderSize+limit)
	w := 0
	for {
		n, err := c.nc.Read(in[w:])
		w += n
		used, bad := c.deliver(in[:w], limit)
		if bad != nil {
			c.fail(bad)
			return
		}
		w = copy(in, in[used:w])
		if n == 0 && err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = fmt.Errorf("silent for %s with requests waiting: %w", c.silence, err)
			}
			c.fail(fmt.Errorf("read: %w", err))
			return
		}
	}
}

// deliver hands out the whole replies in b and returns how many bytes they
// span. After progress the server has the full time again.
func (c *clientConn) deliver(b []byte, limit int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	used := 0
	for {
		m, n, err := Split(b[used:], limit)
		if err != nil {
			return used, badReply(err)
		}
		if n == 0 {
			break
		}
		asked := c.pending[m.ID]
		switch {
		case asked == nil:
			return used, fmt.Errorf("%w: %s with id %d, which was not asked", ErrBadReply, m.Op, m.ID)
		case m.Op != asked.want:
			return used, fmt.Errorf("%w: %s where %s was due", ErrBadReply, m.Op, asked.want)
		case m.Version != Version:
			return used, fmt.Errorf("%w: version %d, want %d", ErrBadReply, m.Version, Version)
		}
		delete(c.pending, m.ID)
		<-c.slots
		asked.reply <- reply{body: bytes.Clone(m.Body)}
		used += n
	}
	if used > 0 && c.retiring && len(c.pending) == 0 {
		return used, errRetired
	}
	if used > 0 {
		c.answered = true
		var deadline time.Time // none while nothing is owed
		if len(c.pending) > 0 {
			deadline = time.Now().Add(c.silence)
		}
		_ = c.nc.SetReadDeadline(deadline) // a dead socket shows at the next Read
	}
	return used, nil
}

// errRetired: the connection's server is not one of the name's any more. It is
// left without fault.
var errRetired = errors.New("varp: the server's name has other addresses now")

// retire ends the connection once nothing is pending.
func (c *clientConn) retire() {
	c.mu.Lock()
	c.retiring = true
	idle := len(c.pending) == 0
	c.mu.Unlock()
	if idle {
		c.fail(errRetired)
	}
}

// fail ends the connection, if it has not ended, and fails what is pending.
func (c *clientConn) fail(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = cause
	close(c.done)
	_ = c.nc.Close()
	for _, asked := range c.pending {
		asked.reply <- reply{err: cause}
	}
	c.pending = nil
}

// ErrBadReply: what came back is no answer to what was asked. If that left
// doubt about where the next one begins, or whose it is, the connection has
// been closed.
var ErrBadReply = errors.New("varp: bad reply")

func badReply(err error) error { return fmt.Errorf("%w: %w", ErrBadReply, err) }

// encoder appends a request with the given id to dst.
type encoder func(dst []byte, id uint32) []byte
