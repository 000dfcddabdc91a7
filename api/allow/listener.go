package allow

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
)

// Bounds on the connections of a listener.
const (
	MaxConnections = 4096 // at once: an installation's compute nodes, and their operators' programs
	MaxStrangers   = 64   // of them, of addresses that are let in nowhere and wait for their 403
)

// Listener bounds the connections of a listener for old programs: over the bound
// it accepts no more until one ends, and strangers can take but few places.
func Listener(l net.Listener, list List) net.Listener {
	return &listener{Listener: l, list: list, slots: make(chan struct{}, MaxConnections), closed: make(chan struct{})}
}

type listener struct {
	net.Listener
	list      List
	slots     chan struct{}
	strangers atomic.Int64
	once      sync.Once
	closed    chan struct{}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		select {
		case l.slots <- struct{}{}:
		case <-l.closed:
			return nil, net.ErrClosed
		}
		inner, err := l.Listener.Accept()
		if err != nil {
			<-l.slots
			return nil, err
		}
		c := &conn{Conn: inner, l: l, stranger: l.list.Of(addressOf(inner)) == None}
		if !c.stranger || l.strangers.Add(1) <= MaxStrangers {
			return c, nil
		}
		_ = c.Close()
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

func addressOf(c net.Conn) netip.Addr {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr()
	}
	return netip.Addr{}
}

type conn struct {
	net.Conn
	l        *listener
	stranger bool
	once     sync.Once
}

// Close implements net.Conn.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		if c.stranger {
			c.l.strangers.Add(-1)
		}
		<-c.l.slots
	})
	return err
}

// SyscallConn implements syscall.Conn, as far as the connection does: the change
// feed writes without waiting.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if inner, ok := c.Conn.(syscall.Conn); ok {
		return inner.SyscallConn()
	}
	return nil, syscall.ENOTSUP
}
