package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"rutter/log"
	"rutter/log/intake"
)

// Errors of Stream.Submit, beside ErrUnavailable and refusals.
var (
	// ErrOverloaded: too much waits at the server; the change was not written. Submit
	// it again later, with the same id, and submit fewer at once.
	ErrOverloaded = errors.New("client: the server is overloaded")
	// ErrBadChange: no server can accept the change; a retry does not help.
	ErrBadChange = errors.New("client: not a change that a server takes")
	// ErrStreamEnded: Run has returned. A pending change may have been written.
	ErrStreamEnded = errors.New("client: the write stream has ended")
)

// Bounds of a Stream.
const (
	maxUnanswered = 4096                  // changes submitted and not answered; beyond, Submit waits
	streamSilence = 15 * time.Second      // a server that sends nothing for so long is dead
	pingEvery     = 5 * time.Second       // makes the server answer
	againAfter    = 25 * time.Millisecond // a change that found no leader is retried after it
	lookEvery     = time.Second           // for the leader, while connected to another server
	streamBuffer  = 64 << 10              // bytes gathered before a write, and of a read
	// hurry is how long a stream that was cut off retries each hurriedPause: during an
	// election servers accept no stream, but an election is shorter than that.
	hurry        = 5 * time.Second
	hurriedPause = 100 * time.Millisecond
)

// Stream writes changes over one connection, many at once. It connects to the leader if
// it finds it, and to the next server when the connection ends. Unanswered changes are
// sent again with the same ids, so that each change is applied once. Run must be
// running for Submit to return.
type Stream struct {
	client *Client
	slots  chan struct{} // one for each change that is unanswered
	kick   chan struct{} // there is something to send

	mu     sync.Mutex // protects what follows
	calls  map[log.UUID]*call
	queue  []*call // to send on the present connection, in order
	number uint64  // of the newest call
	ended  error   // why Run returned
}

// call is a pending change. Its fields except done are protected by Stream.mu.
type call struct {
	id     log.UUID
	number uint64 // in the order of Submit
	change []byte // encoded
	sent   bool   // since the last loss of a connection
	// uncertain is the error of an earlier attempt that may have been written.
	uncertain error
	done      chan streamAnswer // has room for one
}

type streamAnswer struct {
	result log.Result
	err    error
}

// encoders are shared by the goroutines that submit.
var encoders = sync.Pool{New: func() any { return log.NewEncoder() }}

// NewStream returns a Stream that is not connected yet.
func (c *Client) NewStream() *Stream {
	return &Stream{client: c, slots: make(chan struct{}, maxUnanswered), kick: make(chan struct{}, 1), calls: make(map[log.UUID]*call)}
}

// Submit writes a change as a whole, as Client.Submit does; a refusal is a *log.Refusal
// as the error. Any number of goroutines may call it. Changes that are submitted
// concurrently have no order (see Start).
//
// Errors: ErrOverloaded (a *BudgetError too), log.ErrNoRoom, ErrBadChange, log.ErrTooLarge (all: not written, if
// they do not wrap ErrUnavailable as well); ErrUnavailable, with ctx's error,
// and ErrStreamEnded: it may have been written.
func (s *Stream) Submit(ctx context.Context, change *log.Change) (log.Result, error) {
	wait, err := s.Start(ctx, change)
	if err != nil {
		return log.Result{}, err
	}
	return wait(ctx)
}

// Start is Submit that does not wait for the answer: wait does, and must be called once.
// The changes that one goroutine starts are sent in that order; while nothing fails, the
// leader decides them in that order. It is a promise only for changes that do not depend
// on each other: one that is not decided at once is sent again behind later ones.
func (s *Stream) Start(ctx context.Context, change *log.Change) (wait func(context.Context) (log.Result, error), err error) {
	enc := encoders.Get().(*log.Encoder)
	encoded, err := enc.Change(change)
	encoders.Put(enc)
	if err != nil {
		return nil, err
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("client: change %s was not sent: %w", change.ID, ctx.Err())
	}
	c := &call{id: change.ID, change: encoded, done: make(chan streamAnswer, 1)}
	if err := s.add(c); err != nil {
		<-s.slots
		return nil, err
	}
	return func(ctx context.Context) (log.Result, error) { return s.wait(ctx, c) }, nil
}

// wait waits for the answer of a call, and gives its slot back.
func (s *Stream) wait(ctx context.Context, c *call) (log.Result, error) {
	defer func() { <-s.slots }()
	select {
	case a := <-c.done:
		if a.err == nil && a.result.Refusal != nil {
			return a.result, a.result.Refusal
		}
		return a.result, a.err
	case <-ctx.Done():
		s.mu.Lock()
		delete(s.calls, c.id)
		err := errors.Join(ctx.Err(), c.uncertain)
		s.mu.Unlock()
		return log.Result{}, fmt.Errorf("%w: change %s: %w", ErrUnavailable, c.id, err)
	}
}

func (s *Stream) add(c *call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return s.ended
	}
	if _, there := s.calls[c.id]; there {
		return fmt.Errorf("change %s is being submitted already: %w", c.id, ErrBadChange)
	}
	s.number++
	c.number = s.number
	s.calls[c.id] = c
	s.queue = append(s.queue, c)
	wakeUp(s.kick)
	return nil
}

func wakeUp(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Run keeps the stream connected until ctx ends, and returns ctx's error, or until
// every server refuses the certificate: ErrCertificate. Then each pending call gets
// ErrStreamEnded.
func (s *Stream) Run(ctx context.Context) (err error) {
	defer func() { s.end(err) }()
	backoff, cut := minBackoff, time.Now()
	var next *connection
	for {
		conn, err := next, error(nil)
		if next = nil; conn == nil {
			conn, err = s.client.connect(ctx)
		}
		if err == nil {
			begun := time.Now()
			next, err = s.use(ctx, conn)
			if next != nil || time.Since(begun) > maxBackoff {
				backoff, cut = minBackoff, time.Now()
			}
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), next.close())
		}
		if errors.Is(err, ErrCertificate) {
			return err
		}
		s.lost(err)
		if next != nil {
			continue
		}
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
		}
		limit := maxBackoff
		if time.Since(cut) < hurry {
			limit = hurriedPause
		}
		backoff = min(2*backoff, limit)
	}
}

// lost prepares for the next connection: everything unanswered is sent again.
func (s *Stream) lost(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = s.queue[:0]
	for _, c := range s.calls {
		if c.sent {
			c.sent, c.uncertain = false, cause
		}
		s.queue = append(s.queue, c)
	}
	slices.SortFunc(s.queue, func(a, b *call) int { return int(a.number) - int(b.number) })
	wakeUp(s.kick)
}

// settle returns the result of a change to its caller.
func (s *Stream) settle(id log.UUID, a streamAnswer) {
	s.mu.Lock()
	c := s.calls[id]
	delete(s.calls, id)
	s.mu.Unlock()
	if c == nil {
		return // abandoned, or answered before
	}
	tooOld := a.result.Refusal != nil && a.result.Refusal.Code == log.CodeTooOld
	if c.uncertain != nil && (a.err != nil || tooOld) {
		cause := a.err
		if tooOld {
			cause = errors.New(a.result.Refusal.Message) // not certainly refused: an earlier attempt may have written it
		}
		a = streamAnswer{err: fmt.Errorf("%w: it is not known whether change %s was made, look for it: %w", ErrUnavailable, id, errors.Join(cause, c.uncertain))}
	}
	c.done <- a
}

func (s *Stream) end(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = ErrStreamEnded
	if errors.Is(cause, ErrCertificate) {
		s.ended = fmt.Errorf("%w: %w", ErrStreamEnded, cause)
	}
	for _, c := range s.calls {
		c.done <- streamAnswer{err: fmt.Errorf("change %s may have been written: %w", c.id, s.ended)}
	}
	clear(s.calls)
}

// connection is an upgraded connection to one server, welcomed.
type connection struct {
	net.Conn
	server int // index in Client.servers
	frames *intake.Reader
	leads  bool
}

func (c *connection) close() error {
	if c == nil {
		return nil
	}
	return c.Conn.Close()
}

// impatient reads from a connection, with a new deadline for each read.
type impatient struct{ conn net.Conn }

// Read implements io.Reader.
func (r impatient) Read(b []byte) (int, error) {
	if err := r.conn.SetReadDeadline(time.Now().Add(streamSilence)); err != nil {
		return 0, err
	}
	return r.conn.Read(b)
}

// connect opens a write stream to the leader, or if no server is the leader, to the
// first one that answers. It asks the server that answered last first.
func (c *Client) connect(ctx context.Context) (*connection, error) {
	first := int(c.current.Load())
	var found *connection
	var causes, why error
	unwelcome := 0
	for i := range c.servers {
		conn, err := c.dialStream(ctx, (first+i)%len(c.servers))
		switch {
		case err != nil:
			causes = errors.Join(causes, err)
			if w := c.unwelcome(err); w != nil {
				why = w
				unwelcome++
			}
		case conn.leads:
			c.current.Store(uint32(conn.server))
			return conn, found.close()
		case found == nil:
			found = conn
		default:
			conn.Close()
		}
	}
	if unwelcome == len(c.servers) {
		return nil, fmt.Errorf("%w: %w", ErrCertificate, why)
	}
	if found == nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, causes)
	}
	return found, nil
}

// dialStream opens a write stream to one server and reads its welcome.
func (c *Client) dialStream(ctx context.Context, server int) (_ *connection, err error) {
	u := c.servers[server]
	ctx, cancel := context.WithTimeout(ctx, c.cfg.AttemptTimeout)
	defer cancel()
	defer c.watch(u)()
	raw, err := c.dial(ctx, u)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("write stream to %s: %w", u.Host, err), raw.Close())
		}
	}()
	upgraded, err := c.upgrade(ctx, raw, u, intake.Path, intake.Protocol)
	if err != nil {
		return nil, err
	}
	conn := &connection{Conn: upgraded, server: server}
	conn.frames = intake.NewReader(bufio.NewReaderSize(impatient{upgraded}, streamBuffer))
	f, err := conn.frames.Next()
	if err != nil {
		return nil, err
	}
	if f.Type != intake.TypeWelcome {
		return nil, fmt.Errorf("the first frame is of type %d, not a welcome: %w", f.Type, intake.ErrFrame)
	}
	welcome, err := intake.DecodeWelcome(f.Payload)
	if err != nil {
		return nil, err
	}
	if welcome.Version != intake.Version {
		return nil, fmt.Errorf("the server speaks version %d of the write stream, this program %d: upgrade the older", welcome.Version, intake.Version)
	}
	conn.leads = welcome.Leads
	return conn, nil
}

// BudgetError: the author of a change has used up a budget of the servers. The change
// was not written: submit it again, with the same id, After that time. It is an
// ErrOverloaded.
type BudgetError struct {
	After time.Duration
	Text  string // names the budget, what it is, and whose
}

// Error implements error.
func (e *BudgetError) Error() string { return "client: " + e.Text }

// Unwrap makes it an ErrOverloaded.
func (e *BudgetError) Unwrap() error { return ErrOverloaded }
