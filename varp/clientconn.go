package varp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// maxID is the highest id of our requests: illumos uses 1 to 2^31-1, and a server may
// not accept more.
const maxID = 1<<31 - 1

// call is one request in flight.
type call struct {
	want  Op
	reply chan reply // with room for the one reply, so that sending never blocks
}

type reply struct {
	body []byte
	err  error
}

// clientConn is one connection of a Client. A goroutine writes what callers put into
// out, another reads replies and delivers them to the callers by id.
type clientConn struct {
	nc        net.Conn      // its deadlines may be set from any goroutine
	silence   time.Duration // how long the server may be silent while it owes a reply
	slots     chan struct{} // one token for each call in pending
	wake      chan struct{} // with room for one: out has something
	done      chan struct{} // closed when err is set
	lastReply *atomic.Int64 // unix ns of the last valid reply

	mu       sync.Mutex
	err      error // why it ended
	failedAt time.Time
	answered bool // at least one valid reply came
	retiring bool // it ends after the pending calls
	out      []byte
	pending  map[uint32]*call // including those whose caller gave up
	lastID   uint32
}

func newClientConn(nc net.Conn, maxPending int, silence time.Duration, lastReply *atomic.Int64) *clientConn {
	return &clientConn{
		nc:        nc,
		silence:   silence,
		lastReply: lastReply,
		slots:     make(chan struct{}, maxPending),
		wake:      make(chan struct{}, 1),
		done:      make(chan struct{}),
		pending:   make(map[uint32]*call),
	}
}

// ended returns why the connection ended, nil if it has not, and whether any reply
// came.
func (c *clientConn) ended() (cause error, answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err, c.answered
}

// endedAt returns when the connection ended; zero: it has not.
func (c *clientConn) endedAt() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failedAt
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
		return nil, ctx.Err() // the reply frees the slot when it comes
	}
}

// send registers a call and leaves its bytes for the writer. The caller holds a slot,
// which then belongs to the entry in pending.
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
		_ = c.nc.SetReadDeadline(time.Now().Add(c.silence)) // the reader reports a dead socket
	}
	select {
	case c.wake <- struct{}{}:
	default: // the writer is woken already
	}
	return nil
}

// freeIDLocked returns the next id that no pending call has. There is one, because
// slots bounds the calls.
func (c *clientConn) freeIDLocked() uint32 {
	for {
		c.lastID = c.lastID%maxID + 1
		if c.pending[c.lastID] == nil {
			return c.lastID
		}
	}
}

// writeRequests writes everything in out at once, until the connection ends.
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

// readReplies delivers replies until the connection ends, in any order.
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

// deliver delivers the complete replies in b and returns their length in bytes. After
// progress the server has the full time again.
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
		c.lastReply.Store(time.Now().UnixNano())
		var deadline time.Time // none while no reply is owed
		if len(c.pending) > 0 {
			deadline = time.Now().Add(c.silence)
		}
		_ = c.nc.SetReadDeadline(deadline) // a dead socket shows at the next Read
	}
	return used, nil
}

// errRetired: the connection's server is no longer one of the name's. It is left
// without a failure.
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
	c.err, c.failedAt = cause, time.Now()
	close(c.done)
	_ = c.nc.Close()
	for _, asked := range c.pending {
		asked.reply <- reply{err: cause}
	}
	c.pending = nil
}

// ErrBadReply: the reply does not answer the request. If the begin or the owner of the
// next reply is then uncertain, the connection has been closed.
var ErrBadReply = errors.New("varp: bad reply")

func badReply(err error) error { return fmt.Errorf("%w: %w", ErrBadReply, err) }

// encoder appends a request with the given id to dst.
type encoder func(dst []byte, id uint32) []byte
