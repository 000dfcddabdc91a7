package network

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
)

// firstPort and lastPort are the ports that the kernel gives to connections.
const (
	firstPort = 32768
	lastPort  = 60999
)

// Host is a machine of a network.
type Host struct {
	n    *Net
	name string
	ip   net.IP

	// Guarded by Net.mu.
	listeners map[int]*listener
	port      int  // given last
	life      int  // how often it ended
	down      bool // it is not there
	dead      bool // it is there, and its program is not
	held      bool
	dials     waiters
}

// Address returns the address of the host, without a port.
func (h *Host) Address() string { return h.ip.String() }

// Name returns the name of the host.
func (h *Host) Name() string { return h.name }

// Down crashes the host: from now on nothing comes out of it and nothing comes in, and no peer
// is told. Operations of its program on connections and listeners wait until they are closed
// or Up is called; writes are swallowed.
func (h *Host) Down() { h.crash(true) }

// Kill ends the program of the host, and not its kernel, which closes all connections and
// refuses new ones. What the program still does is as after Down.
func (h *Host) Kill() { h.crash(false) }

func (h *Host) crash(silently bool) {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	for _, c := range h.n.between(h.name, "") {
		if c.host != h || c.state != open {
			continue
		}
		if !silently {
			c.leave()
		}
		c.state = gone
		c.wake()
	}
	h.dead, h.down = true, h.down || silently
	h.end()
	h.n.changed(h.name, "")
}

// end ends the listeners and dials of the program that runs.
func (h *Host) end() {
	h.life++
	for _, l := range h.listeners {
		for _, c := range l.backlog {
			c.state = gone
		}
		l.accepts.wakeAll()
	}
	clear(h.listeners)
	h.dials.wakeAll()
}

// Up lets the host begin anew, after Down or Kill, without connections and listeners. What the
// former program still does fails; what its peers still send is answered by a reset.
func (h *Host) Up() {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	if !h.dead {
		return
	}
	h.dead, h.down, h.held = false, false, false
	h.life++
	h.dials.wakeAll()
	for _, c := range h.n.between(h.name, "") {
		if c.host == h && c.state == gone {
			c.state = buried
			c.wake()
			c.forget()
		}
	}
	h.n.changed(h.name, "")
}

// Hold pauses the host, or ends its pause: reads, accepts and dials wait, and what its program
// writes leaves when the pause is over. What arrives meanwhile is kept.
func (h *Host) Hold(held bool) {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	h.held = held
	h.n.changed(h.name, "")
	for _, l := range h.listeners {
		l.accepts.wakeAll()
	}
	h.dials.wakeAll()
}

// nextPort returns a port for a connection.
func (h *Host) nextPort() int {
	if h.port++; h.port > lastPort {
		h.port = firstPort
	}
	return h.port
}

// listener accepts the connections to one port.
type listener struct {
	h       *Host
	addr    *net.TCPAddr
	life    int
	backlog []*conn // Backlog
	closed  bool
	accepts waiters
}

// Listen listens on "10.0.0.1:7421", ":7421", "s1:7421", or on a port of the kernel's choice
// ("10.0.0.1:0"). The address has to be the host's own.
func (h *Host) Listen(address string) (net.Listener, error) {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	fail := func(err error) (net.Listener, error) {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: fmt.Errorf("%s on host %s: %w", address, h.name, err)}
	}
	name, service, err := net.SplitHostPort(address)
	if err != nil {
		return fail(err)
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return fail(err)
	}
	if name != "0.0.0.0" && name != "::" && name != "" && h.resolve(name) != h {
		return fail(os.NewSyscallError("bind", syscall.EADDRNOTAVAIL))
	}
	for port == 0 {
		if p := h.nextPort(); h.listeners[p] == nil {
			port = uint64(p)
		}
	}
	if h.n.closed || h.dead {
		return fail(net.ErrClosed)
	}
	if h.listeners[int(port)] != nil {
		return fail(os.NewSyscallError("bind", syscall.EADDRINUSE))
	}
	l := &listener{h: h, addr: &net.TCPAddr{IP: h.ip, Port: int(port)}, life: h.life}
	h.listeners[int(port)] = l
	return l, nil
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	n := l.h.n
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		switch {
		case l.closed || n.closed || l.life != l.h.life && !l.h.dead:
			return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
		case l.life == l.h.life && !l.h.held && len(l.backlog) > 0:
			c := l.backlog[0]
			l.backlog = l.backlog[1:]
			return c, nil
		}
		l.accepts.wait(n, time.Time{}, nil)
	}
}

// Close implements net.Listener. Connections that were not accepted are reset.
func (l *listener) Close() error {
	n := l.h.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.closed {
		return &net.OpError{Op: "close", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
	}
	l.closed = true
	if l.h.listeners[l.addr.Port] == l {
		delete(l.h.listeners, l.addr.Port)
		for _, c := range l.backlog {
			c.leave()
			c.closed = true
			c.peer.refused(time.Now())
			c.forget()
		}
	}
	l.backlog = nil
	l.accepts.wakeAll()
	return nil
}

// Addr implements net.Listener. It is a *net.TCPAddr.
func (l *listener) Addr() net.Addr { return l.addr }

// resolve returns the host of an address or name; nil if there is none.
func (h *Host) resolve(name string) *Host {
	if ip := net.ParseIP(name); ip != nil && ip.IsLoopback() || name == "localhost" {
		return h
	}
	if other := h.n.byIP[name]; other != nil {
		return other
	}
	return h.n.hosts[name]
}

// Dial connects to an address of another host, or of this one. It has the type of
// net.Dialer.DialContext; network is "tcp" or "tcp4". It returns syscall.ECONNREFUSED if the
// host is there and nothing listens, and waits until ctx ends if nothing answers.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	c, err := h.dial(ctx, network, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("%s from host %s: %w", address, h.name, err)}
	}
	return c, nil
}

func (h *Host) dial(ctx context.Context, network, address string) (*conn, error) {
	name, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return nil, err
	}
	to := h.resolve(name)
	if to == nil || network != "tcp" && network != "tcp4" {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	h.n.counts["dials"]++
	rng, life := h.n.draw("dial "+h.name, to.name), h.life
	if h.dead {
		life = -1 // it waits until the host begins anew
	}
	for again := SYNTime; ; again *= 2 {
		began := time.Now()
		c, err := h.syn(ctx, to, int(port), life, rng)
		if c != nil || err != nil {
			return c, err
		}
		h.n.counts["dials not answered"]++
		if err := h.sleep(ctx, began.Add(again), life); err != nil {
			return nil, err
		}
	}
}

// syn makes one attempt. It returns nil and nil if it was not answered.
func (h *Host) syn(ctx context.Context, to *Host, port, life int, rng *rand.Rand) (*conn, error) {
	if !h.reaches(to) {
		return nil, nil
	}
	if err := h.sleep(ctx, time.Now().Add(h.n.travel(h.n.link(h.name, to.name), rng, h == to)), life); err != nil {
		return nil, err
	}
	if !h.reaches(to) {
		return nil, nil
	}
	back := time.Now().Add(h.n.travel(h.n.link(to.name, h.name), rng, h == to))
	l := to.listeners[port]
	if l == nil {
		h.n.counts["dials refused"]++
		if err := h.sleep(ctx, back, life); err != nil {
			return nil, err
		}
		return nil, os.NewSyscallError("connect", syscall.ECONNREFUSED)
	}
	if len(l.backlog) >= Backlog {
		return nil, nil
	}
	client, server := h.n.connect(h, to, port)
	l.backlog = append(l.backlog, server)
	l.accepts.wakeAll()
	if err := h.sleep(ctx, back, life); err != nil {
		if client.state == open {
			client.leave()
		}
		client.closed = true
		client.forget()
		return nil, err
	}
	return client, nil
}

// reaches reports whether a segment to another host is answered.
func (h *Host) reaches(to *Host) bool {
	return !h.dead && !h.held && !to.down && !to.held && !h.n.link(h.name, to.name).Cut && !h.n.link(to.name, h.name).Cut
}

// sleep waits until a time, the end of ctx, or the end of the program that dials.
func (h *Host) sleep(ctx context.Context, until time.Time, life int) error {
	for {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case h.n.closed || life != h.life && !h.dead:
			return net.ErrClosed
		case !h.dead && !until.After(time.Now()):
			return nil
		case h.dead:
			h.dials.wait(h.n, time.Time{}, ctx.Done())
		default:
			h.dials.wait(h.n, until, ctx.Done())
		}
	}
}
