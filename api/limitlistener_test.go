package api

import (
	"errors"
	"net"
	"testing"
	"time"
)

// A listener takes no more connections than it may.
func TestLimitListener(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Store: newMemory()})
	if err != nil {
		t.Fatal(err)
	}
	l := s.guard.Listener(inner, 1)
	accepted := make(chan net.Conn)
	ended := make(chan error, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- conn
		}
	}()
	var first net.Conn
	for range 2 {
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if first == nil {
			first = <-accepted
		}
	}
	select {
	case <-accepted:
		t.Fatal("a second connection was accepted, over the limit")
	case <-time.After(20 * time.Millisecond): // it cannot be waited for that nothing comes
	}
	first.Close()
	first.Close() // gives its slot back once
	second := <-accepted
	l.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	second.Close()
}
