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
	"rutter/varp/internal/evloop"
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
	sock *evloop.Conn // nc, if a loop can serve it, else nil
	peer netip.Addr   // the zero Addr if it is not TCP

	lastUse atomic.Int64 // unix ns of the last batch of requests
	evicted atomic.Bool  // closed to make room for another

	// The rest is used only by the goroutine in run, and by a loop while run waits in
	// sock.Serve.

	in          []byte // in[r:w] was received and is not answered
	r, w        int
	full        bool  // the last read filled in completely: more is waiting
	served      int64 // whole requests consumed so far
	deadlineFor int64 // value of served for whose next request a deadline is set

	lookup Lookup // of the batch that is answered; nil: none yet
	held   bool   // Config.Lookup must be told when the batch ends

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
	c := &conn{s: s, ln: ln, nc: nc, peer: peer, in: make([]byte, minReadBuf), flushAt: flushAt, deadlineFor: notArmed, logClient: peer}
	if sock, ok := nc.(*evloop.Conn); ok {
		c.sock = sock
	}
	c.lastUse.Store(time.Now().UnixNano())
	return c
}

// release gives back the descriptor of a connection that is closed.
func (c *conn) release() {
	if c.sock != nil {
		c.sock.Release()
	}
}

// run reads and answers until the connection ends, and returns why. A loop serves what
// it can; what remains, such as a part of a request, is for this goroutine, which may
// wait.
func (c *conn) run() error {
	for {
		if c.sock != nil && c.r == c.w && len(c.out) == 0 {
			c.sock.Serve(c)
		}
		if c.r == c.w && len(c.out) == 0 {
			if err := c.fill(); err != nil {
				return err
			}
		}
		if err := c.answerWhole(); err != nil {
			return err
		}
		for c.r < c.w { // a part of a request
			if err := c.fill(); err != nil {
				return err
			}
			if err := c.answerWhole(); err != nil {
				return err
			}
		}
	}
}

// readsAtOnce bounds the reads of one connection until a loop turns to the next.
const readsAtOnce = 4

// Readable implements evloop.Handler: it reads and makes the answers that can be made
// without waiting. false leaves the rest, and what goes wrong, to run, which meets it again.
func (c *conn) Readable() (more bool) {
	defer c.endBatch()
	for range readsAtOnce {
		c.makeRoom()
		n, err := c.sock.TryRead(c.in[c.w:])
		if err != nil {
			return err == evloop.ErrWait && c.w == 0
		}
		c.w += n
		c.full = c.w == len(c.in)
		if !c.answerLookups() {
			return false
		}
		if !c.full {
			break
		}
	}
	return c.r == c.w
}

// answerLookups answers complete requests up to one that may wait, or is bad, and
// reports whether there was none such and no answer is in the way.
func (c *conn) answerLookups() bool {
	simple := true
	for simple {
		m, n, err := Split(c.in[c.r:c.w], MaxBody)
		if err == nil && n == 0 {
			break
		}
		simple = err == nil && (m.Op == OpVL3Req || m.Op == OpVL2Req || m.Op == OpPing)
		if simple {
			c.out, err = c.answer(c.out, m)
			simple = err == nil
		}
		if simple {
			c.r += n
			c.served++
			simple = len(c.out) < c.flushAt || c.Flush()
		}
	}
	return simple
}

// Flush implements evloop.Handler: it writes the answers as far as there is room, and
// reports whether that was all of them.
func (c *conn) Flush() (more bool) {
	c.endBatch()
	if len(c.out) == 0 {
		return true
	}
	if c.s.serving() != nil {
		return false
	}
	c.countBatch()
	n, _ := c.sock.TryWrite(c.out) // an error is lasting
	c.out = c.out[:copy(c.out, c.out[n:])]
	return len(c.out) == 0
}

// makeRoom moves what is not answered to the start of the buffer, and lets that grow.
func (c *conn) makeRoom() {
	if c.r > 0 {
		c.w = copy(c.in, c.in[c.r:c.w])
		c.r = 0
	}
	if (c.full || c.w == len(c.in)) && len(c.in) < maxReadBuf {
		grown := make([]byte, min(2*len(c.in), maxReadBuf))
		copy(grown, c.in[:c.w])
		c.in = grown
	}
}

// fill makes room and reads once.
func (c *conn) fill() error {
	c.makeRoom()
	if err := c.setDeadline(); err != nil {
		return err
	}
	n, err := c.nc.Read(c.in[c.w:])
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
	return bad
}

// flush writes the answers in one write, and adds up the counts. It moves the deadline
// only when half of it has passed, because setting a timer for each answer costs a
// tenth of a lookup.
func (c *conn) flush() error {
	c.endBatch()
	if len(c.out) == 0 {
		return nil
	}
	if err := c.s.serving(); err != nil {
		return err
	}
	now := c.countBatch()
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

// countBatch adds the counts of a batch to the server's, and returns when that was.
func (c *conn) countBatch() time.Time {
	c.counts[countWrite]++
	c.s.counts.add(&c.counts)
	now := time.Now()
	c.lastUse.Store(now.UnixNano())
	return now
}

// batch returns the Lookup of the requests that were read together: it is brought up to
// date once for them. It ends before answers are written, and before an answer of the
// log: a lookup after a shootdown never gets the old answer.
func (c *conn) batch() Lookup {
	if c.lookup == nil {
		c.lookup = c.s.cfg.Lookup
		if b, ok := c.lookup.(BatchLookup); ok {
			c.lookup, c.held = b.Begin()
		}
	}
	return c.lookup
}

func (c *conn) endBatch() {
	if c.held {
		c.s.cfg.Lookup.(BatchLookup).End()
	}
	c.lookup, c.held = nil, false
}
