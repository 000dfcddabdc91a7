package evloop

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns a connection that a loop took, and its peer.
func pair(t *testing.T, g *Group) (*Conn, *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	peer, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = peer.Close() })
	_ = peer.SetDeadline(time.Now().Add(time.Minute))
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := g.Take(nc)
	if c == nil {
		t.Fatal("a TCP connection was not taken")
	}
	if c.RemoteAddr().String() != peer.LocalAddr().String() || c.LocalAddr().String() != ln.Addr().String() {
		t.Errorf("from %s to %s, want %s and %s", c.RemoteAddr(), c.LocalAddr(), peer.LocalAddr(), ln.Addr())
	}
	return c, peer.(*net.TCPConn)
}

func group(t *testing.T) *Group {
	g := new(Group)
	if err := g.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	return g
}

// echo sends back what it reads, up to a full stop.
type echo struct {
	c    *Conn
	held []byte
}

func (e *echo) Readable() bool {
	b := make([]byte, 100)
	n, err := e.c.TryRead(b)
	e.held = append(e.held, b[:n]...)
	return err == ErrWait || err == nil && !bytes.Contains(e.held, []byte("."))
}

func (e *echo) Flush() bool {
	n, _ := e.c.TryWrite(e.held)
	e.held = e.held[n:]
	return len(e.held) == 0
}

// TestServe: a handler serves until it returns false, over pauses in which the loop waits
// in the runtime, and what it held is its user's then.
func TestServe(t *testing.T) {
	serve(t, group(t))
}

// TestServeOnOneProcessor: the loop never holds the only processor.
func TestServeOnOneProcessor(t *testing.T) {
	l, err := newLoop(false)
	if err != nil {
		t.Fatal(err)
	}
	g := &Group{users: 1, loops: []*loop{l}}
	g.wg.Go(l.run)
	defer g.Stop()
	serve(t, g)
}

func serve(t *testing.T, g *Group) {
	t.Helper()
	c, peer := pair(t, g)
	defer c.Release()
	e := &echo{c: c}
	returned := make(chan struct{})
	go func() { c.Serve(e); close(returned) }()
	for i := range 50 {
		if _, err := peer.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 5)
		if _, err := io.ReadFull(peer, b); err != nil || string(b) != "hello" {
			t.Fatalf("%q, %v", b, err)
		}
		if i%10 == 0 {
			time.Sleep(2 * hotFor) // the loop goes to sleep in the runtime
		}
	}
	if _, err := peer.Write([]byte("end.")); err != nil {
		t.Fatal(err)
	}
	<-returned
	if string(e.held) != "end." {
		t.Errorf("held %q", e.held)
	}
	_ = peer.Close()
	c.Serve(e) // returns at the end
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("at the end: %v, want EOF", err)
	}
}

// TestClose: it ends Serve, Read and Write of another goroutine.
func TestClose(t *testing.T) {
	g := group(t)
	for name, use := range map[string]func(*Conn) error{
		"serve": func(c *Conn) error { c.Serve(&echo{c: c}); return net.ErrClosed },
		"read":  func(c *Conn) error { _, err := c.Read(make([]byte, 1)); return err },
		"write": func(c *Conn) error {
			for b := make([]byte, 1<<20); ; {
				if _, err := c.Write(b); err != nil {
					return err
				}
			}
		},
	} {
		c, _ := pair(t, g)
		ended := make(chan error, 1)
		go func() { ended <- use(c) }()
		time.Sleep(time.Millisecond) // any order is right
		_ = c.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) && name != "write" || err == nil {
			t.Errorf("%s: %v", name, err)
		}
		c.Release()
		_ = c.Close() // after its descriptor may be another's
	}
}

// TestDeadlines: Read and Write end at theirs, and can be used again.
func TestDeadlines(t *testing.T) {
	c, peer := pair(t, group(t))
	defer c.Release()
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v", err)
	}
	_ = c.SetDeadline(time.Time{})
	go func() { _, _ = peer.Write([]byte("x")) }()
	if n, err := c.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("read without a deadline: %d, %v", n, err)
	}
	_ = c.SetWriteDeadline(time.Now().Add(time.Millisecond))
	for {
		if _, err := c.Write(make([]byte, 1<<20)); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("write: %v", err)
			}
			break
		}
	}
}

// TestTakesOnlyTCP: others stay as they are, and so does every connection while no loop
// runs.
func TestTakesOnlyTCP(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if group(t).Take(a) != nil {
		t.Error("a pipe was taken")
	}
	if new(Group).Take(&net.TCPConn{}) != nil {
		t.Error("taken without a loop")
	}
}

// TestSetLinger: a connection that is ended without lingering is reset, so that the kernel
// keeps nothing of what a peer that reads nothing was sent.
func TestSetLinger(t *testing.T) {
	c, peer := pair(t, group(t))
	if err := peer.SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	if err := c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for err := error(nil); err == nil; { // until there is no room for more
		_, err = c.Write(make([]byte, 64<<10))
	}
	if err := errors.Join(c.SetLinger(0), c.Close()); err != nil {
		t.Fatal(err)
	}
	c.Release()
	if _, err := io.Copy(io.Discard, peer); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer got %v, want a reset", err)
	}
	if err := c.SetLinger(0); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}
