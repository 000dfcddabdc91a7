package serve

import (
	"errors"
	"net"
	"syscall"
)

// servingListener is a listener for a protocol whose answers come from the store's
// state. While serving returns an error, it closes new connections, and open ones send
// no answer (architecture rule 3). It is used by pointer, because SVP compares listeners.
type servingListener struct {
	net.Listener
	serving func() error
}

// Accept implements net.Listener.
func (g *servingListener) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if g.serving() == nil {
			return servingConn{conn, g.serving}, nil
		}
		_ = conn.Close() // the client asks another server
	}
}

// servingConn sends nothing while its server must not serve.
type servingConn struct {
	net.Conn
	serving func() error
}

// Write implements net.Conn.
func (c servingConn) Write(b []byte) (int, error) {
	if err := c.serving(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// SyscallConn implements syscall.Conn. It is for reading only, because a write by it
// would not be checked.
func (c servingConn) SyscallConn() (syscall.RawConn, error) {
	if conn, ok := c.Conn.(syscall.Conn); ok {
		return conn.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
