package replicas

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// delay is a proxy in front of a port: each byte arrives late after it was sent, in both
// directions, in order. While it is held, nothing arrives.
type delay struct {
	listener net.Listener
	target   string
	late     time.Duration

	mu   sync.Mutex // protects what follows
	open chan struct{}
	held bool
}

// newDelay starts a proxy, until the test ends.
func newDelay(t *testing.T, target string, late time.Duration) *delay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &delay{listener: listener, target: target, late: late, open: make(chan struct{})}
	close(d.open)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.accept(ctx, &running) })
	t.Cleanup(func() {
		cancel()
		listener.Close()
		running.Wait()
	})
	return d
}

// hold stops the proxy, or lets it go on.
func (d *delay) hold(held bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if held == d.held {
		return
	}
	if d.held = held; held {
		d.open = make(chan struct{})
	} else {
		close(d.open)
	}
}

func (d *delay) accept(ctx context.Context, running *sync.WaitGroup) {
	for {
		from, err := d.listener.Accept()
		if err != nil {
			return
		}
		running.Go(func() {
			var dialer net.Dialer
			to, err := dialer.DialContext(ctx, "tcp", d.target)
			if err != nil {
				from.Close()
				return
			}
			stop := context.AfterFunc(ctx, func() { from.Close(); to.Close() })
			defer stop()
			running.Go(func() { d.copy(ctx, to, from) })
			d.copy(ctx, from, to)
		})
	}
}

// piece is what one read brought.
type piece struct {
	at time.Time
	b  []byte
}

// copy passes on what is read until the connection ends, and then closes both ends.
func (d *delay) copy(ctx context.Context, to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	pieces := make(chan piece, 4096)
	go func() {
		defer close(pieces)
		for {
			b := make([]byte, 32<<10)
			n, err := from.Read(b)
			if n > 0 {
				select {
				case pieces <- piece{time.Now(), b[:n]}:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range pieces {
		d.mu.Lock()
		open := d.open
		d.mu.Unlock()
		select {
		case <-open:
		case <-ctx.Done():
			return
		}
		if wait := time.Until(p.at.Add(d.late)); wait > 0 {
			time.Sleep(wait)
		}
		if _, err := to.Write(p.b); err != nil {
			from.Close() // ends the reader, whose pieces are dropped
			for range pieces {
			}
			return
		}
	}
}

// TestDelay: what passes is late, in order, and held when asked.
func TestDelay(t *testing.T) {
	t.Parallel()
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); conn.Close() }()
		}
	}()
	const late = 50 * time.Millisecond
	d := newDelay(t, echo.Addr().String(), late)
	conn, err := net.Dial("tcp", d.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	begun := time.Now()
	if _, err := conn.Write([]byte("one two")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 7)
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != "one two" || time.Since(begun) < 2*late {
		t.Errorf("%q, %v after %v; want it after %v", b, err, time.Since(begun), 2*late)
	}
	d.hold(true)
	_, _ = conn.Write([]byte("more"))
	_ = conn.SetReadDeadline(time.Now().Add(4 * late))
	if n, err := conn.Read(b); n > 0 || err == nil {
		t.Errorf("%d bytes came through a proxy that is held, %v", n, err)
	}
	d.hold(false)
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadFull(conn, b[:4]); err != nil || string(b[:4]) != "more" {
		t.Errorf("after it: %q, %v", b[:4], err)
	}
}
