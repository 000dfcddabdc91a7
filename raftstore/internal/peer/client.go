package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Errors of a Client.
var (
	// ErrNotSent: the request did not leave this server.
	ErrNotSent = errors.New("raftstore: peer not reached")
	// ErrUnknown: the request left this server, and no answer came: it may have been
	// executed or not. It is raftstore.ErrUnknown.
	ErrUnknown = errors.New("raftstore: the fate of the change is not known")
	// ErrStopped: the server's tasks have ended. It is raftstore.ErrStopped.
	ErrStopped = errors.New("raftstore: the store is not running")
)

// Client sends requests to peers, over one connection to each. Its methods may be called
// from any goroutine.
type Client struct {
	port *Port

	mu          sync.Mutex // protects connections
	connections map[string]*connection

	probes, silent atomic.Uint64 // see Probes
}

// NewClient returns a client that dials through port.
func NewClient(port *Port) *Client { return &Client{port: port} }

// Dial opens a new connection for requests to a peer. The caller owns it.
func (c *Client) Dial(ctx context.Context, address string) (net.Conn, error) {
	return c.port.dial(ctx, address, streamPeer)
}

// DialImage opens a connection to a peer for one image.
func (c *Client) DialImage(ctx context.Context, address string) (net.Conn, error) {
	return c.port.dial(ctx, address, streamImage)
}

// Connected returns a channel that is closed when the connection to a peer ends. It makes
// the connection if there is none.
func (c *Client) Connected(ctx context.Context, address string) (ended <-chan struct{}, err error) {
	l, err := c.connection(ctx, address)
	if err != nil {
		return nil, err
	}
	return l.done, nil
}

// connection is a connection to a peer, with the requests that wait for an answer.
type connection struct {
	*sender
	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan Frame // nil once the connection is lost
	silent  time.Time             // when the first request was sent since the last answer; zero: none was
	probing bool                  // a probe is under way
}

// Call sends a request and waits for its answer. ErrNotSent means that the peer did not
// get the request; any other error wraps ErrUnknown.
func (c *Client) Call(ctx context.Context, address string, kind byte, payload []byte) (Frame, error) {
	l, err := c.connection(ctx, address)
	if err != nil {
		return Frame{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	answer := make(chan Frame, 1)
	l.mu.Lock()
	if l.waiting == nil {
		l.mu.Unlock()
		return Frame{}, fmt.Errorf("%w: connection to %s lost", ErrNotSent, address)
	}
	l.next++
	number := l.next
	l.waiting[number] = answer
	l.sent()
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.waiting, number)
		l.mu.Unlock()
	}()
	if !l.send(ctx, Frame{number, kind, payload}) {
		return Frame{}, fmt.Errorf("%w: connection to %s lost", ErrNotSent, address)
	}
	select {
	case f, ok := <-answer:
		if !ok {
			return Frame{}, fmt.Errorf("%w: connection to %s lost", ErrUnknown, address)
		}
		return f, nil
	case <-ctx.Done():
		if l.suspect() && !c.port.opts.Tasks.Start(func() { c.probe(address, l) }) {
			l.close()
		}
		return Frame{}, fmt.Errorf("%w: %w", ErrUnknown, ctx.Err())
	}
}

// connection returns the connection to address. It makes a new one if there is none.
func (c *Client) connection(ctx context.Context, address string) (*connection, error) {
	c.mu.Lock()
	l := c.connections[address]
	c.mu.Unlock()
	if l != nil {
		return l, nil
	}
	conn, err := c.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	l = &connection{sender: newSender(conn), waiting: make(map[uint64]chan Frame)}
	c.mu.Lock()
	if other := c.connections[address]; other != nil {
		c.mu.Unlock()
		conn.Close()
		return other, nil
	}
	if c.connections == nil {
		c.connections = make(map[string]*connection)
	}
	c.connections[address] = l
	c.mu.Unlock()
	if !c.port.opts.Tasks.Start(l.run) || !c.port.opts.Tasks.Start(func() { c.listen(address, l) }) {
		l.close()
		return nil, ErrStopped
	}
	return l, nil
}

// listen passes answers to their callers until the connection ends, and then ends the
// waiting calls.
func (c *Client) listen(address string, l *connection) {
	r := bufio.NewReaderSize(l.conn, 64<<10)
	for {
		f, err := readFrame(r)
		if err != nil {
			break
		}
		l.mu.Lock()
		answer := l.waiting[f.Number]
		delete(l.waiting, f.Number)
		l.answered()
		l.mu.Unlock()
		if answer != nil {
			answer <- f
		}
	}
	l.close()
	c.mu.Lock()
	if c.connections[address] == l {
		delete(c.connections, address)
	}
	c.mu.Unlock()
	l.mu.Lock()
	lost := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	for _, answer := range lost {
		close(answer)
	}
}
