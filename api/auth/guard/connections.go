package guard

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"rutter/api/auth/audit"
	"rutter/api/auth/internal/slots"
	"rutter/api/auth/matrix"
	"rutter/log/refusals"
)

// identified is a connection whose listener authenticated the other side in a
// handshake.
type identified interface{ Identity() matrix.Identity }

// connections counts the connections of a server, by address and by identity.
type connections struct {
	guard  *Guard
	limits Limits

	refused refusals.Counter // by address, for the log

	mu         sync.Mutex // protects what follows
	addresses  map[netip.Addr]int
	identities map[string]int
	conns      map[*limitedConn]struct{} // those with an identity
}

func newConnections(g *Guard, limits Limits) *connections {
	return &connections{
		guard: g, limits: limits, addresses: make(map[netip.Addr]int), identities: make(map[string]int), conns: make(map[*limitedConn]struct{}),
	}
}

// Listener accepts at most n connections of l at once, and bounds those of each address
// and each identity. Its connections implement syscall.Conn if those of l do, so that
// they can be written to without waiting.
func (g *Guard) Listener(l net.Listener, n int) net.Listener {
	return &limited{Listener: slots.New(l, n), connections: g.connections}
}

type limited struct {
	*slots.Listener
	connections *connections
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	full := func() { l.connections.guard.CountLimit(LimitConnections) }
	for {
		if !l.Acquire(full) {
			return nil, net.ErrClosed
		}
		conn, err := l.Listener.Accept()
		if err != nil {
			l.Release()
			return nil, err
		}
		c := &limitedConn{Conn: conn, l: l, who: whoIs(conn)}
		if l.connections.admit(c) {
			return c, nil
		}
		cut(c)
	}
}

// whoIs returns the identity of the other side: matrix.Local on a listener without TLS.
// A connection with TLS but without an identity has the role None.
func whoIs(conn net.Conn) matrix.Identity {
	if known, ok := conn.(identified); ok {
		return known.Identity()
	}
	host := hostOf(conn.RemoteAddr().String())
	if _, secret := conn.(*tls.Conn); secret {
		return matrix.Identity{Role: matrix.None, Name: host}
	}
	return matrix.Identity{Role: matrix.Local, Name: host}
}

// admit counts a connection; false: a limit is reached.
func (g *connections) admit(c *limitedConn) bool {
	c.address = addressOf(c.Conn)
	if c.who.Role == matrix.Local && (!c.address.IsValid() || c.address.IsLoopback()) {
		return true
	}
	key, limit, bound := c.who.Key(), "", 0
	g.mu.Lock()
	switch most := g.limits.PerIdentity[c.who.Role]; { // of clients without TLS none: their key is the address
	case g.addresses[c.address] >= g.limits.PerAddress:
		limit, bound = limitPerAddress, g.limits.PerAddress
	case most > 0 && g.identities[key] >= most:
		limit, bound = limitPerIdentity, most
	default:
		g.addresses[c.address]++
		g.identities[key]++
		g.conns[c] = struct{}{}
		c.counted = true
	}
	g.mu.Unlock()
	r := audit.Record{Event: audit.Authenticated, Actor: c.who.Actor(), Serial: c.who.Serial, Remote: c.RemoteAddr().String()}
	if limit != "" {
		g.guard.CountLimit(limit)
		g.logRefused(c, limit, bound)
		r.Event, r.Asked = audit.Limited, limit
	} else if c.who.Role != matrix.Local {
		g.guard.named.WithLabelValues(c.who.Role.String()).Inc()
	}
	if limit != "" || c.who.Serial != "" {
		g.guard.Note(r)
	}
	return limit == ""
}

// logRefused logs that connections were closed over a limit, once a minute for each
// address.
func (g *connections) logRefused(c *limitedConn, limit string, bound int) {
	n := g.refused.Count(c.address, time.Now())
	if n == 0 {
		return
	}
	g.guard.cfg.Logger.Warn("API: connections closed: as many are open as the limit allows", "from", c.address, "who", c.who.Actor(),
		"limit", limit, "most", bound, "closed", n, "do", "end the program there that opens them, or let it keep connections and use them again (ss -tn shows them)")
}

// left forgets a connection.
func (g *connections) left(c *limitedConn) {
	if !c.counted {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	drop(g.addresses, c.address)
	drop(g.identities, c.who.Key())
	delete(g.conns, c)
}

// drop decrements a count, and removes it at 0.
func drop[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] <= 0 {
		delete(counts, key)
	}
}

// CutOff closes the connections of the identities that match, streams included, and
// returns how many. It is used after a revocation. match must not call the guard.
func (g *Guard) CutOff(match func(matrix.Identity) bool) int {
	g.connections.mu.Lock()
	var found []*limitedConn
	for c := range g.connections.conns {
		if match(c.who) {
			found = append(found, c)
		}
	}
	g.connections.mu.Unlock()
	for _, c := range found {
		cut(c)
	}
	return len(found)
}

// cut closes a connection without a TLS close message, because the other side may not
// read.
func cut(c *limitedConn) {
	if below, ok := c.Conn.(interface{ NetConn() net.Conn }); ok {
		_ = below.NetConn().Close()
	}
	_ = c.Close()
}

// addressOf returns the source address of a connection, without its port; the zero
// address if it has none.
func addressOf(c net.Conn) netip.Addr {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}

type limitedConn struct {
	net.Conn
	l       *limited
	once    sync.Once
	who     matrix.Identity
	address netip.Addr
	counted bool
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.l.connections.left(c)
		c.l.Release()
	})
	return err
}

// SyscallConn implements syscall.Conn, as far as the connection does.
func (c *limitedConn) SyscallConn() (syscall.RawConn, error) {
	if conn, ok := c.Conn.(syscall.Conn); ok {
		return conn.SyscallConn()
	}
	return nil, syscall.ENOTSUP
}

// WithIdentity puts the identity of a connection of a Listener into the context of its
// requests, as http.Server.ConnContext.
func WithIdentity(ctx context.Context, c net.Conn) context.Context {
	if l, ok := c.(*limitedConn); ok {
		return matrix.With(ctx, l.who)
	}
	return ctx
}
