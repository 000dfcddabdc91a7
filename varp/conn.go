package varp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"rutter/log"
)

// Sizes of a connection's buffers, in bytes. Old clients have one small request in
// flight, so a connection starts small. A client that pipelines gets more, up to a
// bound that holds the longest message.
const (
	minReadBuf = 2 << 10
	maxReadBuf = HeaderSize + MaxBody
	// flushAt is the number of bytes at which answers are written although more
	// requests wait. At most this and one more answer are held.
	flushAt = 32 << 10
)

// errSlowReader: the peer did not take its answers within WriteTimeout.
var errSlowReader = errors.New("varp: answers not taken in time")

// notArmed is the value of conn.deadlineFor while no read deadline is set.
const notArmed = -1

// conn is one connection of a Server. It answers strictly in the order of the requests,
// because linux-cn-varpd aborts on any other order.
type conn struct {
	s    *Server
	ln   net.Listener // that accepted it
	nc   net.Conn
	peer netip.Addr // the zero Addr if it is not TCP

	lastUse atomic.Int64 // unix ns of the last batch of requests
	evicted atomic.Bool  // closed to make room for another

	// The rest is used only by the goroutine in run.

	in          []byte // in[r:w] was received and is not answered
	r, w        int
	full        bool  // the last read filled in completely: more is waiting
	served      int64 // whole requests consumed so far
	deadlineFor int64 // value of served for whose next request a deadline is set

	polling bool // the next requests are awaited without sleep
	spinner *spinner

	out        []byte    // answers to be written
	flushAt    int       // bytes at which out is written
	writeArmed time.Time // when the write deadline was set last
	counts     [numCounters]uint64
	logClient  netip.Addr // the last client of the log on this connection; otherwise the peer's address
	records    []Record   // room for one LOG_ACK
	ids        []log.UUID // room for one LOG_RM
}

func newConn(s *Server, ln net.Listener, nc net.Conn) *conn {
	peer := addrOf(nc.RemoteAddr())
	c := &conn{s: s, ln: ln, nc: nc, peer: peer, in: make([]byte, minReadBuf), flushAt: flushAt, deadlineFor: notArmed, logClient: peer, spinner: newSpinner(nc)}
	c.lastUse.Store(time.Now().UnixNano())
	return c
}

// run reads and answers until the connection ends, and returns why.
func (c *conn) run() error {
	for {
		if err := c.fill(); err != nil {
			return err
		}
		if err := c.answerWhole(); err != nil {
			return err
		}
	}
}

// fill makes room and reads once.
func (c *conn) fill() error {
	if c.r > 0 {
		c.w = copy(c.in, c.in[c.r:c.w])
		c.r = 0
	}
	if (c.full || c.w == len(c.in)) && len(c.in) < maxReadBuf {
		grown := make([]byte, min(2*len(c.in), maxReadBuf))
		copy(grown, c.in[:c.w])
		c.in = grown
	}
	if err := c.setDeadline(); err != nil {
		return err
	}
	var n int
	var err error
	if c.polling && c.w == 0 {
		n = c.spinner.wait(c.in)
	}
	if n == 0 {
		n, err = c.nc.Read(c.in[c.w:])
	}
	c.w += n
	c.full = c.w == len(c.in)
	if n > 0 {
		return nil // an error will come again
	}
	return err
}

// setDeadline sets the read deadline: none between requests, MessageTimeout within one,
// counted from its first byte and not extended by later bytes.
func (c *conn) setDeadline() error {
	switch partial := c.w > 0; {
	case partial && c.deadlineFor != c.served:
		c.deadlineFor = c.served
		return c.nc.SetReadDeadline(time.Now().Add(c.s.cfg.MessageTimeout))
	case !partial && c.deadlineFor != notArmed:
		c.deadlineFor = notArmed
		return c.nc.SetReadDeadline(time.Time{})
	}
	return nil
}

// answerWhole answers every complete request in the buffer and writes the answers
// together. Those before a bad request are written too.
func (c *conn) answerWhole() error {
	var bad error
	before := c.served
	for bad == nil {
		m, n, err := Split(c.in[c.r:c.w], MaxBody)
		if err != nil {
			bad = err
			break
		}
		if n == 0 {
			break
		}
		c.out, bad = c.answer(c.out, m)
		c.r += n
		c.served++
		if len(c.out) >= c.flushAt {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	if err := c.flush(); err != nil {
		return err
	}
	c.polling = c.s.alone(c, c.served-before)
	return bad
}

// flush writes the answers in one write, and adds up the counts. It moves the deadline
// only when half of it has passed, because setting a timer for each answer costs a
// tenth of a lookup.
func (c *conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	c.counts[countWrite]++
	c.s.counts.add(&c.counts)
	now := time.Now()
	c.lastUse.Store(now.UnixNano())
	if timeout := c.s.cfg.WriteTimeout; now.Sub(c.writeArmed) > timeout/2 {
		c.writeArmed = now
		if err := c.nc.SetWriteDeadline(now.Add(timeout)); err != nil {
			return err
		}
	}
	_, err := c.nc.Write(c.out)
	c.out = c.out[:0]
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: %w", errSlowReader, err)
	}
	return err
}
