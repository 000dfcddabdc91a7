package raftstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/raftstore/skipped"
)

// The first byte that a dialler sends says what the connection is for.
const (
	streamRaft byte = 'R' // the dialler's cluster id (16), then hashicorp/raft's own protocol
	streamPeer byte = 'P' // frames of peer.go follow
	// streamSkips is streamRaft of a server that has planted skips: see skip_greet.go.
	streamSkips byte = 'S'
	// streamImage is for one image: see rebuild.go.
	streamImage byte = 'I'
)

const (
	// firstByteWait bounds how long an accepted connection may say nothing.
	firstByteWait = 5 * time.Second
	// writeProgress bounds one write to a peer: a snapshot's stream that stands
	// still must not hold its read transaction (SAFETY S6).
	writeProgress = 20 * time.Second
	// maxPeerConns bounds accepted connections; a server has a handful for each peer.
	maxPeerConns = 256
	// raftTimeout bounds raft's own exchanges.
	raftTimeout = 5 * time.Second
)

// tasks are the goroutines and connections of one Run, which ends none before it.
type tasks struct {
	wg sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	conns   map[net.Conn]struct{}
}

// start runs fn in a goroutine that stop waits for, unless stop was called.
func (t *tasks) start(fn func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return false
	}
	t.wg.Go(fn)
	return true
}

// adopt makes stop close conn; false, with conn closed, if it is too late or
// there are too many.
func (t *tasks) adopt(conn net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped || len(t.conns) >= maxPeerConns {
		conn.Close()
		return false
	}
	if t.conns == nil {
		t.conns = make(map[net.Conn]struct{})
	}
	t.conns[conn] = struct{}{}
	return true
}

func (t *tasks) forget(conn net.Conn) {
	t.mu.Lock()
	delete(t.conns, conn)
	t.mu.Unlock()
}

// hangUp closes the connections that there are now.
func (t *tasks) hangUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for conn := range t.conns {
		conn.Close()
	}
}

// stop closes the connections and waits for the goroutines.
func (t *tasks) stop() {
	t.mu.Lock()
	t.stopped = true
	t.mu.Unlock()
	t.hangUp()
	t.wg.Wait()
}

// trackedConn is a peer connection that its tasks know of, whose writes must
// make progress.
type trackedConn struct {
	net.Conn
	tasks *tasks

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

// Write implements net.Conn: the earlier of the owner's deadline and ours holds.
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

// mux parts the connections of the peer port.
type mux struct {
	listener net.Listener
	network  Network
	address  addr // advertised
	tasks    *tasks
	raft     chan net.Conn
	peer     func(net.Conn)
	cluster  func() log.UUID     // the server's own; zero as long as it has none
	skips    func() skipped.List // the server's own
	// sameSkips is asked about one who dials with skips, and may refuse it.
	sameSkips func(from net.Addr, cluster log.UUID, theirs []skipped.Skip) bool
	logger    *slog.Logger
	told      atomic.Int64 // when the last stranger was logged, unix ns
	image     func(net.Conn)
	ctx       context.Context // ends with the Run that the mux serves
	done      chan struct{}
	once      sync.Once
}

// addr is an address by name, as peers dial it.
type addr string

// Network implements net.Addr.
func (addr) Network() string { return "tcp" }

// String implements net.Addr.
func (a addr) String() string { return string(a) }

// run accepts until the listener is closed.
func (m *mux) run() error {
	for {
		conn, err := m.listener.Accept()
		if err != nil {
			select {
			case <-m.done:
				return nil
			default:
			}
			var temporary net.Error
			if errors.As(err, &temporary) && temporary.Timeout() {
				continue
			}
			return fmt.Errorf("peer port %s: accept: %w", m.address, err)
		}
		if !m.tasks.adopt(conn) {
			continue
		}
		tracked := &trackedConn{Conn: conn, tasks: m.tasks}
		if !m.tasks.start(func() { m.sort(tracked) }) {
			tracked.Close()
		}
	}
}

// sort reads the first byte of a connection and hands it on.
func (m *mux) sort(conn net.Conn) {
	var first [1]byte
	_ = conn.SetReadDeadline(time.Now().Add(firstByteWait))
	if _, err := conn.Read(first[:]); err != nil {
		conn.Close()
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	switch first[0] {
	case streamRaft, streamSkips:
		if !m.sameCluster(conn, first[0]) {
			conn.Close()
			return
		}
		select {
		case m.raft <- conn:
		case <-m.done:
			conn.Close()
		}
	case streamPeer:
		m.peer(conn)
	case streamImage:
		m.image(conn)
	default:
		conn.Close()
	}
}

// strangerPause is the least time between two words about servers of another
// cluster, which try again and again.
const strangerPause = 10 * time.Second

// sameCluster reads the dialler's cluster id and skips, and reports whether they are
// ours or one of the two has none yet. A server that was left behind by a recovery, or
// the old owner of an address, must not talk raft to us: raft itself knows
// nothing of clusters, and an old leader of a higher term would be believed.
func (m *mux) sameCluster(conn net.Conn, sort byte) bool {
	var theirs log.UUID
	_ = conn.SetReadDeadline(time.Now().Add(firstByteWait))
	if _, err := io.ReadFull(conn, theirs[:]); err != nil {
		return false
	}
	_ = conn.SetReadDeadline(time.Time{})
	skips, err := readSkips(conn, sort)
	if err != nil {
		m.logger.Warn("refusing a server whose greeting cannot be read", "peer", conn.RemoteAddr(), "error", err)
		return false
	}
	ours := m.cluster()
	if ours.IsZero() || theirs.IsZero() || ours == theirs {
		return m.sameSkips(conn.RemoteAddr(), theirs, skips)
	}
	now := time.Now().UnixNano()
	if last := m.told.Load(); now-last > int64(strangerPause) && m.told.CompareAndSwap(last, now) {
		m.logger.Warn("refusing a server of another cluster; stop it, or empty its data folder and let it join", "peer", conn.RemoteAddr(), "its_cluster", theirs, "our_cluster", ours)
	}
	return false
}

// dial opens a connection of a sort to a peer.
func (m *mux) dial(ctx context.Context, address string, sort byte) (net.Conn, error) {
	conn, err := m.network.Dial(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("peer %s: %w", address, err)
	}
	if !m.tasks.adopt(conn) {
		return nil, ErrStopped
	}
	tracked := &trackedConn{Conn: conn, tasks: m.tasks}
	first := []byte{sort}
	if sort == streamRaft {
		if first, err = greeting(m.cluster(), m.skips()); err != nil {
			tracked.Close()
			return nil, err
		}
	}
	if _, err := tracked.Write(first); err != nil {
		tracked.Close()
		return nil, fmt.Errorf("peer %s: %w", address, err)
	}
	return tracked, nil
}

// Dial implements raft.StreamLayer.
func (m *mux) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(m.ctx, timeout)
	defer cancel()
	return m.dial(ctx, string(address), streamRaft)
}

// Accept implements net.Listener for raft.
func (m *mux) Accept() (net.Conn, error) {
	select {
	case conn := <-m.raft:
		return conn, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (m *mux) Close() error {
	var err error
	m.once.Do(func() {
		close(m.done)
		err = m.listener.Close()
	})
	return err
}

// Addr implements net.Listener: what the others dial.
func (m *mux) Addr() net.Addr { return m.address }
