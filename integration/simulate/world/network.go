package world

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// netw is a stand-in until package network is there.
type netw struct {
	mu    sync.Mutex
	hosts map[string]*host
	at    map[string]*host
	ports int
}

type host struct {
	n         *netw
	name, ip  string
	down      bool
	listeners map[string]*listener
	conns     map[*conn]bool
}

func newNet(uint64) *netw { return &netw{hosts: map[string]*host{}, at: map[string]*host{}, ports: 30000} }

func (n *netw) Host(name string) *host {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[name]
	if h == nil {
		h = &host{n: n, name: name, ip: fmt.Sprintf("10.0.%d.%d", len(n.hosts)/200, len(n.hosts)%200+1), listeners: map[string]*listener{}, conns: map[*conn]bool{}}
		n.hosts[name], n.at[h.ip] = h, h
	}
	return h
}

func (h *host) Address() string { return h.ip }

type listener struct {
	h     *host
	addr  *net.TCPAddr
	queue chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (h *host) Listen(address string) (net.Listener, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	if h.listeners[port] != nil {
		return nil, errors.New("address in use " + address)
	}
	var p int
	fmt.Sscan(port, &p)
	l := &listener{h: h, addr: &net.TCPAddr{IP: net.ParseIP(h.ip), Port: p}, queue: make(chan net.Conn, 128), done: make(chan struct{})}
	h.listeners[port] = l
	return l, nil
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Addr() net.Addr { return l.addr }

func (l *listener) Close() error {
	l.once.Do(func() {
		l.h.n.mu.Lock()
		port := fmt.Sprint(l.addr.Port)
		if l.h.listeners[port] == l {
			delete(l.h.listeners, port)
		}
		l.h.n.mu.Unlock()
		close(l.done)
	})
	return nil
}

func (h *host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	ip, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h.n.mu.Lock()
	to := h.n.at[ip]
	var l *listener
	if to != nil {
		l = to.listeners[port]
	}
	down := to == nil || to.down || h.down
	h.n.ports++
	own := &net.TCPAddr{IP: net.ParseIP(h.ip), Port: h.n.ports}
	h.n.mu.Unlock()
	if down {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if l == nil {
		return nil, errors.New("connection refused " + address)
	}
	a, b := newPipe(own, l.addr)
	h.n.mu.Lock()
	h.conns[a], to.conns[b] = true, true
	h.n.mu.Unlock()
	select {
	case l.queue <- b:
		return a, nil
	case <-l.done:
		return nil, errors.New("connection refused " + address)
	}
}

func (h *host) Down() {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	h.down = true
	for c := range h.conns {
		c.cut()
	}
	h.conns = map[*conn]bool{}
	for p, l := range h.listeners {
		delete(h.listeners, p)
		l.once.Do(func() { close(l.done) })
	}
}

func (h *host) Up() {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	h.down = false
}

// half is one direction: an unbounded-ish buffer with a deadline.
type half struct {
	mu     sync.Mutex
	buf    []byte
	closed bool
	lost   bool
	wake   chan struct{}
}

func (h *half) signal() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

type conn struct {
	in, out       *half
	local, remote net.Addr
	mu            sync.Mutex
	closed        chan struct{}
	once          sync.Once
	deadline      time.Time
	moved         chan struct{}
}

func newPipe(a, b net.Addr) (*conn, *conn) {
	x, y := &half{wake: make(chan struct{}, 1)}, &half{wake: make(chan struct{}, 1)}
	return &conn{in: x, out: y, local: a, remote: b, closed: make(chan struct{}), moved: make(chan struct{}, 1)}, &conn{in: y, out: x, local: b, remote: a, closed: make(chan struct{}), moved: make(chan struct{}, 1)}
}

type timeout struct{}

func (timeout) Error() string   { return "i/o timeout" }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }
func (timeout) Is(err error) bool { return err == context.DeadlineExceeded }

func (c *conn) Read(p []byte) (int, error) {
	for {
		c.in.mu.Lock()
		if len(c.in.buf) > 0 {
			n := copy(p, c.in.buf)
			c.in.buf = c.in.buf[n:]
			c.in.mu.Unlock()
			return n, nil
		}
		closed := c.in.closed
		c.in.mu.Unlock()
		select {
		case <-c.closed:
			return 0, net.ErrClosed
		default:
		}
		if closed {
			return 0, io.EOF
		}
		c.mu.Lock()
		d := c.deadline
		c.mu.Unlock()
		var timer *time.Timer
		var after <-chan time.Time
		if !d.IsZero() {
			left := time.Until(d)
			if left <= 0 {
				return 0, &net.OpError{Op: "read", Net: "tcp", Err: os_deadline}
			}
			timer = time.NewTimer(left)
			after = timer.C
		}
		select {
		case <-c.in.wake:
		case <-c.closed:
		case <-c.moved:
		case <-after:
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

var os_deadline error = timeout{}

func (c *conn) Write(p []byte) (int, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if c.out.closed {
		return 0, errors.New("broken pipe")
	}
	if !c.out.lost {
		c.out.buf = append(c.out.buf, p...)
	}
	c.out.signal()
	return len(p), nil
}

func (c *conn) cut() {
	for _, h := range []*half{c.in, c.out} {
		h.mu.Lock()
		h.lost = true
		h.mu.Unlock()
	}
}

func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		for _, h := range []*half{c.out, c.in} {
			h.mu.Lock()
			if !h.lost {
				h.closed = true
			}
			h.mu.Unlock()
			h.signal()
		}
	})
	return nil
}
func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }
func (c *conn) SetDeadline(t time.Time) error {
	return c.SetReadDeadline(t)
}
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = t
	c.mu.Unlock()
	select {
	case c.moved <- struct{}{}:
	default:
	}
	return nil
}
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
