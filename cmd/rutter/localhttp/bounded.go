package localhttp

import (
	"net"
	"sync"
)

// Bounds of the open connections at a port of TCP. Root, and the user of this process,
// have none: they can end this process too. Without the bounds, any user of the machine
// could hold all of the file descriptors that a daemon may have, and a program of root's
// would find its port closed.
const (
	maxOfUser = 64  // of one user; clients that are unknown count as one
	maxOthers = 256 // of all users together
)

// Listen opens a port of TCP for programs of this machine. A connection over a bound is
// closed at once. Errors: those of net.Listen.
func Listen(address string) (net.Listener, error) {
	inner, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return &boundedListener{Listener: inner, of: make(map[int64]int)}, nil
}

// boundedListener bounds the open connections of a port.
type boundedListener struct {
	net.Listener

	mu  sync.Mutex    // protects what follows
	of  map[int64]int // open connections by the user's number, or unknownUser
	all int           // their sum
}

// unknownUser stands for clients of which the kernel does not say whose they are.
const unknownUser = -1

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &boundedConn{Conn: conn}
		c.peer, c.err = peerOf(conn)
		if c.err == nil && c.peer.Privileged() {
			return c, nil
		}
		if l.enter(c) {
			return c, nil
		}
		_ = conn.Close()
	}
}

// enter counts a connection, unless that would exceed a bound.
func (l *boundedListener) enter(c *boundedConn) bool {
	user := int64(unknownUser)
	if c.err == nil {
		user = int64(c.peer.UID)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= maxOthers || l.of[user] >= maxOfUser {
		return false
	}
	l.all++
	l.of[user]++
	c.leave = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all--
		if l.of[user]--; l.of[user] == 0 {
			delete(l.of, user)
		}
	}
	return true
}

// boundedConn is a connection that a boundedListener has accepted.
type boundedConn struct {
	net.Conn
	peer  Peer
	err   error  // why the peer was unknown when it was accepted
	leave func() // nil: it does not count
	once  sync.Once
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	if c.leave != nil {
		c.once.Do(c.leave)
	}
	return err
}
