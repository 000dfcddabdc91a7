package serve

import (
	"errors"
	"net"
	"syscall"
)

// gate is a listener for a protocol whose answers come from the store's state:
// while serving returns an error, connections are closed, and what would be
// answered on those that are open is not sent (architecture rule 3).
type gate struct {
	net.Listener
	serving func() error
}

// Accept implements net.Listener.
func (g gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if g.serving() == nil {
			return gatedConn{conn, g.serving}, nil
		}
		_ = conn.Close() // the client asks another server
	}
}

// gatedConn sends nothing while its server must not.
type gatedConn struct {
	net.Conn
	serving func() error
}

// Write implements net.Conn.
func (c gatedConn) Write(b []byte) (int, error) {
	if err := c.serving(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// SyscallConn implements syscall.Conn, for reading only: what is written past
// Write would pass the gate.
func (c gatedConn) SyscallConn() (syscall.RawConn, error) {
	if conn, ok := c.Conn.(syscall.Conn); ok {
		return conn.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
