package varp

import (
	"net"
	"syscall"
	"testing"
	"time"
)

// TestSpinnerWait: what has arrived is read at once; a client that sends nothing, or
// has ended, is not waited for beyond the bound.
func TestSpinnerWait(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	peer := dialTCP(t, ln.Addr().String())
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	s, b := newSpinner(nc), make([]byte, 16)
	if n := s.wait(b); n != 0 {
		t.Errorf("nothing was sent: %d bytes", n)
	}
	write(t, peer, []byte("seven b"))
	got := 0
	eventually(t, "what was sent", func() bool { got += s.wait(b[got:]); return got == 7 })
	closeWrite(t, peer)
	if n := s.wait(b); n != 0 {
		t.Errorf("after its end: %d bytes", n)
	}
	if n := newSpinner(struct{}{}).wait(b); n != 0 {
		t.Errorf("without a descriptor: %d bytes", n)
	}
}

// TestAlone: only one connection that pipelined for a while is awaited without sleep.
func TestAlone(t *testing.T) {
	s, a, b := &Server{}, &conn{}, &conn{}
	alone := func(c *conn, requests int64, times int) (is bool) {
		for range times {
			is = s.alone(c, requests)
		}
		return is
	}
	for _, step := range []struct {
		what     string
		c        *conn
		requests int64
		times    int
		want     bool
	}{
		{"too short a streak", a, spinBatch, spinStreak, false},
		{"long enough", a, spinBatch, 3, true},
		{"one request at a time", a, spinBatch - 1, 1, false},
		{"again many", a, spinBatch, 1, true},
		{"another", b, spinBatch, 1, false},
		{"the first after the other", a, spinBatch, 1, false},
	} {
		if got := alone(step.c, step.requests, step.times); got != step.want {
			t.Errorf("%s: %v, want %v", step.what, got, step.want)
		}
	}
}

// TestIdleAfterPipelining: a connection that was awaited without sleep, and then sends
// nothing, takes almost no processor time.
func TestIdleAfterPipelining(t *testing.T) {
	_, addr := startServer(t, Config{Lookup: vectorFixture()})
	nc := dialTCP(t, addr)
	var batch []byte
	for i := range 2 * spinBatch {
		batch = appendLookup(batch, i)
	}
	for range 2 * spinStreak {
		write(t, nc, batch)
		for range 2 * spinBatch {
			readMessage(t, nc)
		}
	}
	const idle = 300 * time.Millisecond
	used := func() time.Duration {
		before := processorTime(t)
		time.Sleep(idle) // what is measured
		return processorTime(t) - before
	}
	// What the runtime still has to do ends by itself.
	eventually(t, "next to no processor time without a request", func() bool { return used() <= idle/3 })
}

// processorTime is what this process used so far. Parallel tests wait meanwhile.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
