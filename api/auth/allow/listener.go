package allow

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"rutter/api/auth/internal/slots"
	"rutter/log/refusals"
)

// Bounds on the connections of a listener.
const (
	MaxConnections = 4096 // at once: the compute nodes of an installation, and the programs of their operators
	MaxStrangers   = 64   // of them, from addresses without any right, which get 403
)

// Listener bounds and tracks the connections of a listener.
type Listener struct {
	*slots.Listener
	of        func(netip.Addr) Right
	logger    *slog.Logger
	strangers atomic.Int64
	refused   refusals.Counter // by address, for the log

	mu   sync.Mutex // protects open
	open map[*conn]struct{}
}

// NewListener bounds the connections of a listener for programs without TLS. At the
// bound, it accepts no more until one ends. Addresses without any right share
// MaxStrangers; of those that are closed then the logger gets a line, once a minute for
// each address. of returns what an address may do, as List.Of and Handler.Of.
func NewListener(l net.Listener, of func(netip.Addr) Right, logger *slog.Logger) *Listener {
	return &Listener{
		Listener: slots.New(l, MaxConnections), of: of, logger: logger, open: make(map[*conn]struct{}),
	}
}

// CutOff closes the connections of the addresses that match, change feeds included, and
// returns how many. match must not use the Listener.
func (l *Listener) CutOff(match func(netip.Addr) bool) int {
	l.mu.Lock()
	var found []*conn
	for c := range l.open {
		if match(addressOf(c.Conn)) {
			found = append(found, c)
		}
	}
	l.mu.Unlock()
	for _, c := range found {
		_ = c.Close()
	}
	return len(found)
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		if !l.Acquire(nil) {
			return nil, net.ErrClosed
		}
		inner, err := l.Listener.Accept()
		if err != nil {
			l.Release()
			return nil, err
		}
		c := &conn{Conn: inner, l: l, stranger: l.of(addressOf(inner)) == None}
		if !c.stranger || l.strangers.Add(1) <= MaxStrangers {
			l.mu.Lock()
			l.open[c] = struct{}{}
			l.mu.Unlock()
			return c, nil
		}
		_ = c.Close()
		l.logRefused(addressOf(inner))
	}
}

// logRefused logs that connections of an address without any right were closed.
func (l *Listener) logRefused(from netip.Addr) {
	if n := l.refused.Count(from, time.Now()); n > 0 {
		l.logger.Warn("connections closed: as many are open as addresses without any right may have", "listen", l.Addr(), "from", from,
			"limit", MaxStrangers, "closed", n, "do", "let the address of the program in (--triton-allow), or end the program there that connects")
	}
}

func addressOf(c net.Conn) netip.Addr {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

type conn struct {
	net.Conn
	l        *Listener
	stranger bool
	once     sync.Once
}

// Close implements net.Conn.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.l.mu.Lock()
		delete(c.l.open, c)
		c.l.mu.Unlock()
		if c.stranger {
			c.l.strangers.Add(-1)
		}
		c.l.Release()
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
