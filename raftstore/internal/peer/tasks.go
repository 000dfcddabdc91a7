package peer

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"rutter/log/refusals"
)

const (
	// writeProgress bounds one write to a peer, because a snapshot's stream without
	// progress must not hold its read transaction (SAFETY S6).
	writeProgress = 20 * time.Second
	// maxConns bounds accepted connections. A server has a few for each peer.
	maxConns = 256
)

// Tasks are the goroutines and connections of one run of a server. Stop ends them all.
// The zero value is ready for use. Its methods may be called from any goroutine.
type Tasks struct {
	wg sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	conns   map[net.Conn]struct{}
	refused refusals.Counter // connections beyond maxConns, for the log

	closed atomic.Uint64 // as many as these
}

// Refused returns how many connections were closed because as many were open as the
// limit allows.
func (t *Tasks) Refused() uint64 { return t.closed.Load() }

// Start runs fn in a goroutine that Stop waits for. It returns false, and does not run
// fn, if Stop was called.
func (t *Tasks) Start(fn func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return false
	}
	t.wg.Go(fn)
	return true
}

// adopt makes Stop close conn. If Stop was called, or there are too many connections, it
// closes conn and returns false. The latter is logged.
func (t *Tasks) adopt(conn net.Conn, logger *slog.Logger) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped || len(t.conns) >= maxConns {
		conn.Close()
		if !t.stopped {
			t.logRefused(conn.RemoteAddr(), logger)
		}
		return false
	}
	if t.conns == nil {
		t.conns = make(map[net.Conn]struct{})
	}
	t.conns[conn] = struct{}{}
	return true
}

func (t *Tasks) logRefused(from net.Addr, logger *slog.Logger) {
	t.closed.Add(1)
	var address netip.Addr
	if tcp, ok := from.(*net.TCPAddr); ok {
		address = tcp.AddrPort().Addr().Unmap()
	}
	if n := t.refused.Count(address, time.Now()); n > 0 {
		logger.Warn("peer port: connections refused: as many are open as the limit allows", "peer", address, "limit", maxConns, "refused", n, "do", "let only servers reach this port; ss -tn shows who holds connections")
	}
}

func (t *Tasks) forget(conn net.Conn) {
	t.mu.Lock()
	delete(t.conns, conn)
	t.mu.Unlock()
}

// HangUp closes the present connections.
func (t *Tasks) HangUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for conn := range t.conns {
		conn.Close()
	}
}

// Stop closes the connections and waits for the goroutines.
func (t *Tasks) Stop() {
	t.mu.Lock()
	t.stopped = true
	t.mu.Unlock()
	t.HangUp()
	t.wg.Wait()
}

// trackedConn is a connection of a Tasks. Its writes must make progress.
type trackedConn struct {
	net.Conn
	tasks *Tasks

	mu       sync.Mutex
	deadline time.Time // the owner's, for writes
}

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	c.tasks.forget(c.Conn)
	return c.Conn.Close()
}

// SetDeadline implements net.Conn.
func (c *trackedConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetWriteDeadline implements net.Conn.
func (c *trackedConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = t
	c.mu.Unlock()
	return c.Conn.SetWriteDeadline(t)
}

// Write implements net.Conn. The earlier of the owner's deadline and writeProgress
// applies.
func (c *trackedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	deadline := time.Now().Add(writeProgress)
	if !c.deadline.IsZero() && c.deadline.Before(deadline) {
		deadline = c.deadline
	}
	c.mu.Unlock()
	if err := c.Conn.SetWriteDeadline(deadline); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
