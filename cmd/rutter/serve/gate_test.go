package serve

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// A server that must not serve answers nothing on open connections, and takes
// no new ones, until it may again.
func TestGate(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var closed atomic.Bool
	diverged := errors.New("diverged")
	g := &servingListener{l, func() error {
		if closed.Load() {
			return diverged
		}
		return nil
	}}
	accepted := make(chan net.Conn)
	go func() {
		for {
			conn, err := g.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- conn
		}
	}()
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	dial()
	open := <-accepted
	defer open.Close()
	if _, err := open.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	closed.Store(true)
	if n, err := open.Write([]byte("y")); n != 0 || !errors.Is(err, diverged) {
		t.Errorf("%d bytes were sent by a server that must not: %v", n, err)
	}
	refused := dial()
	_ = refused.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := refused.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("a new connection: %v, want it closed by the server", err)
	}
	closed.Store(false)
	dial()
	again := <-accepted
	defer again.Close()
	if _, err := again.Write([]byte("z")); err != nil {
		t.Error(err)
	}
	l.Close()
	<-accepted
}
