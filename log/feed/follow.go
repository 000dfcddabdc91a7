package feed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"rutter/log"
)

// Times of the client's side. A dead connection is noticed SilenceLimit after the last
// frame. A server answers each ping, so three pings were unanswered then.
const (
	PingEvery    = 5 * time.Second
	SilenceLimit = 15 * time.Second
	// TellLazily is the least time between two watermarks while no client waits for
	// this subscriber. Without it, on a busy log, a server would read one watermark
	// from each CN for each entry. TellEvery is the least time while a client waits:
	// see Tell.
	TellLazily = 500 * time.Millisecond
	TellEvery  = 2 * time.Millisecond
	WriteLimit = 10 * time.Second // for writing one frame
	// FinalRead is how long the reader goes on after a write failed. A server that sends
	// a subscriber away closes the connection behind its Drain, which a write may find
	// out before the Drain is read.
	FinalRead  = time.Second
	readBuffer = 64 << 10 // bytes; one read takes some hundred entries
)

// Errors of Follow.
var (
	// ErrSilent: no frame came for SilenceLimit. The connection is dead. Connect again,
	// or to another server.
	ErrSilent = errors.New("feed: the server is silent")
	// ErrDrained: the server sent this subscriber away; the text says why. Use errors.As with *DrainError.
	ErrDrained = errors.New("feed: sent away by the server")
	// ErrOrder: the stream broke its order, so it cannot be trusted. Connect again from
	// the last bookmark.
	ErrOrder = errors.New("feed: stream out of order")
)

// DrainError is the error of a stream that the server ended in order. errors.Is reports
// ErrDrained.
type DrainError struct{ Drain Drain }

// Error implements error.
func (e *DrainError) Error() string {
	return fmt.Sprintf("%s: %s: %s", ErrDrained, e.Drain.Reason, e.Drain.Text)
}

// Unwrap returns ErrDrained.
func (e *DrainError) Unwrap() error { return ErrDrained }

// Handler takes the messages that Follow reads, in order, in one goroutine. If a method
// returns an error, Follow ends and returns it. The handler may keep the messages.
type Handler interface {
	// Welcome is the first call: the log that is followed.
	Welcome(*Welcome) error
	// Reset: the cursor cannot be used. The scopes follow anew (see Reset).
	Reset(*Reset) error
	// Entry comes with growing Seq, with gaps, because the stream is filtered. Its Seq
	// may be at or before the as-of of a held scope: then the objects of that scope are
	// already newer (SAFETY F2).
	Entry(*Entry) error
	// Object comes between ScopeBegin and ScopeEnd, or alone (see Object).
	Object(*Object) error
	ScopeBegin(*ScopeBegin) error
	ScopeEnd(*ScopeEnd) error
	ScopeDropped(*ScopeDropped) error
	// Bookmark moves the cursor. The handler should store the cursor and what came
	// since the last bookmark in one transaction.
	Bookmark(*Bookmark) error
}

// RequestHandler is a Handler that also answers requests. For a Handler that is none,
// Follow answers with status 501.
type RequestHandler interface {
	// Request must not block. The work that it starts ends with a Response by
	// Conn.Send.
	Request(*Request) error
}

// sendQueue is how many messages wait in Send's queue for the connection.
const sendQueue = 64

// Conn is the client's end of a feed's connection.
type Conn struct {
	conn net.Conn
	wake chan struct{} // holds one token while something is to be sent
	up   chan Message  // messages of Send; written at once

	knows atomic.Uint32 // of the Welcome

	mu       sync.Mutex // protects what follows
	latest   *Watermark // not sent yet; a newer one replaces it
	again    []*Again   // not sent yet, at most MaxScopes
	wanted   log.Seq    // a client waits until this seq is programmed
	reported log.Seq    // Far of the last watermark that was sent
	listed   uint32     // List of the last watermark that was sent with its list
	sent     time.Time  // when that was

	condition    Condition // as last given
	conditionDue bool      // condition was not sent yet
}

// NewConn returns the client's end of conn, on which the server waits for a hello. It
// starts nothing.
func NewConn(conn net.Conn) *Conn {
	return &Conn{conn: conn, wake: make(chan struct{}, 1), up: make(chan Message, sendQueue)}
}

// Send queues m (a Response, Ring or Inventory) behind the messages of earlier calls.
// It does not keep the pause that watermarks keep. It blocks only while sendQueue
// messages wait, at most until ctx ends. nil means that m was queued, not that it
// arrived. It may be called from any goroutine, also before Follow.
func (c *Conn) Send(ctx context.Context, m Message) error {
	select {
	case c.up <- m:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Watermark sends w: at once if a client waits for it (see Tell), else TellLazily after
// the last one. If an older watermark was not sent yet, w replaces it. It never blocks,
// and may be called from any goroutine, also before Follow: it is then sent after the
// hello.
func (c *Conn) Watermark(w Watermark) {
	c.mu.Lock()
	c.latest = &w
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Again asks the server to send a scope anew. It never blocks, and may be called from
// any goroutine.
func (c *Conn) Again(a Again) {
	c.mu.Lock()
	if len(c.again) < MaxScopes {
		c.again = append(c.again, &a)
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// noteTell records that a client waits.
func (c *Conn) noteTell(t *Tell) {
	c.mu.Lock()
	c.wanted = max(c.wanted, t.Seq)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// take returns what must be sent now: scopes that are asked for, then the watermark. If
// nothing must be sent, it returns the time until a watermark is due, 0 if there is
// none.
func (c *Conn) take(now time.Time) (up []Message, due time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.again {
		up = append(up, a)
	}
	c.again = nil
	up = c.takeCondition(up)
	if c.latest == nil {
		return up, 0
	}
	gap := TellLazily
	if c.wanted > c.reported || c.latest.List != c.listed { // a barrier may wait for an object of the list
		gap = TellEvery
	}
	if left := gap - now.Sub(c.sent); left > 0 {
		return up, left
	}
	c.reported, c.sent = c.latest.Far(), now
	if c.latest.List == c.listed { // the server has it
		c.latest.Listed, c.latest.Waits = false, nil
	}
	up, c.listed = append(up, c.latest), c.latest.List
	c.latest = nil
	return up, 0
}

// Close closes the connection; Follow then returns.
func (c *Conn) Close() error { return c.conn.Close() }

// Follow sends the hello and passes what the server sends to handler. It ends when ctx
// ends, the connection breaks or the handler returns an error, and never returns nil.
// It sends pings and watermarks meanwhile, and closes the connection when it returns.
// Errors: ctx's, ErrSilent, *DrainError, ErrOrder, ErrFrame, the handler's, and those
// of the connection.
func (c *Conn) Follow(ctx context.Context, hello *Hello, handler Handler) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { c.conn.Close() })
	defer stop()

	written := make(chan struct{})
	go func() {
		defer close(written)
		err := c.writeAll(ctx, hello)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(FinalRead):
			cancel(err)
		}
	}()
	err := c.readAll(hello.Cursor, handler)
	// If the reader did not close the connection itself, the cause says why it was
	// closed. A Drain that was read says more: the subscriber must go elsewhere.
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, ErrDrained) {
		err = cause
	}
	cancel(nil)
	c.conn.Close()
	<-written
	return err
}

// writeAll sends the hello, then pings and watermarks until ctx ends.
func (c *Conn) writeAll(ctx context.Context, hello *Hello) error {
	if err := c.write(hello); err != nil {
		return err
	}
	ping := time.NewTicker(PingEvery)
	defer ping.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ping.C:
			if err := c.write(new(Ping)); err != nil {
				return err
			}
			continue
		case m := <-c.up:
			if err := c.write(m); err != nil {
				return err
			}
			continue
		case <-pause.C:
		case <-c.wake:
		}
		up, due := c.take(time.Now())
		for _, m := range up {
			if err := c.write(m); err != nil {
				return err
			}
		}
		if due > 0 {
			pause.Reset(due)
		}
	}
}

func (c *Conn) write(m Message) error {
	b, err := Append(nil, m)
	if err != nil {
		return err
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(WriteLimit)); err != nil {
		return err
	}
	_, err = c.conn.Write(b)
	return err
}

// readAll reads frames and passes them to the handler until an error.
func (c *Conn) readAll(cursor log.Cursor, handler Handler) error {
	if p, ok := handler.(Preparer); ok {
		return c.readAhead(cursor, p)
	}
	return c.read(cursor, func(m Message, _ bool) error { return c.handle(m, handler) })
}

// read passes messages to take until an error. more reports whether another message can
// be read without waiting.
func (c *Conn) read(cursor log.Cursor, take func(m Message, more bool) error) error {
	buffer := bufio.NewReaderSize(c.conn, readBuffer)
	r := NewReader(buffer)
	order := order{last: cursor.Seq}
	var limited time.Time
	for {
		// To set a deadline costs as much as a small frame, so it is not set for each.
		if now := time.Now(); now.Sub(limited) > SilenceLimit/100 {
			if err := c.conn.SetReadDeadline(now.Add(SilenceLimit)); err != nil {
				return err
			}
			limited = now
		}
		f, err := r.Next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("%w: no frame for %s", ErrSilent, SilenceLimit)
		}
		if err != nil {
			return fmt.Errorf("feed: read: %w", err)
		}
		m, err := Decode(f)
		if errors.Is(err, ErrUnknownType) {
			continue
		}
		if err != nil {
			return err
		}
		if err := order.check(m); err != nil {
			return err
		}
		if err := take(m, buffer.Buffered() > 0); err != nil {
			return err
		}
	}
}

// Knows returns the newest feature version that the server's program knows; 0 before the
// Welcome, and of a program that does not say so.
func (c *Conn) Knows() uint32 { return c.knows.Load() }

// handle passes one message to the handler.
func (c *Conn) handle(m Message, handler Handler) error {
	switch m := m.(type) {
	case *Tell:
		c.noteTell(m)
		return nil
	case *Request:
		return c.request(m, handler)
	case *Welcome:
		c.knows.Store(m.Knows)
		return dispatch(m, handler)
	default:
		return dispatch(m, handler)
	}
}

// request passes a request to the handler. If the handler takes none, it answers with
// 501.
func (c *Conn) request(m *Request, handler Handler) error {
	if h, ok := handler.(RequestHandler); ok {
		return h.Request(m)
	}
	select {
	case c.up <- &Response{Number: m.Number, Status: http.StatusNotImplemented}:
	default: // the queue is full: this one stays unanswered
	}
	return nil
}

func dispatch(m Message, handler Handler) error {
	switch m := m.(type) {
	case *Welcome:
		return handler.Welcome(m)
	case *Reset:
		return handler.Reset(m)
	case *Entry:
		return handler.Entry(m)
	case *Object:
		return handler.Object(m)
	case *ScopeBegin:
		return handler.ScopeBegin(m)
	case *ScopeEnd:
		return handler.ScopeEnd(m)
	case *ScopeDropped:
		return handler.ScopeDropped(m)
	case *Bookmark:
		return handler.Bookmark(m)
	case *Drain:
		return &DrainError{*m}
	}
	return nil
}
