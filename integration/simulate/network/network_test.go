package network

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns a network and the two ends of a connection from a to b.
func pair(t *testing.T) (n *Net, client, server net.Conn) {
	t.Helper()
	n = New(1)
	l, err := n.Host("b").Listen(":80")
	if err != nil {
		t.Fatal(err)
	}
	client, err = n.Host("a").Dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return n, client, server
}

func write(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// read reads once, and returns what it got, or the error, and how long it took.
func read(c net.Conn) (text string, took time.Duration, err error) {
	began, b := time.Now(), make([]byte, 100)
	n, err := c.Read(b)
	return string(b[:n]), time.Since(began), err
}

// TestReads has one row for each thing that becomes of what an end waits for.
func TestReads(t *testing.T) {
	const ms = time.Millisecond
	reset := func(_ *testing.T, n *Net, _, _ net.Conn) { n.Reset("a", "b") }
	for name, row := range map[string]struct {
		do   func(t *testing.T, n *Net, client, server net.Conn)
		text string
		err  error
		took time.Duration
		end  string // of which end; the server's unless "client"
	}{
		"at once": {do: func(t *testing.T, _ *Net, c, _ net.Conn) { write(t, c, "x") }, text: "x", took: Base},
		"arrived": {do: func(t *testing.T, _ *Net, c, _ net.Conn) { write(t, c, "x"); time.Sleep(ms) }, text: "x"},
		"slow":    {do: func(t *testing.T, n *Net, c, _ net.Conn) { n.Set("a", "b", Link{Delay: 70 * ms}); write(t, c, "x") }, text: "x", took: Base + 70*ms},
		"slow is over": {do: func(t *testing.T, n *Net, c, _ net.Conn) {
			n.Set("", "b", Link{Delay: 70 * ms})
			n.Set("", "b", Link{})
			write(t, c, "x")
		}, text: "x", took: Base},
		"slow twice": {do: func(t *testing.T, n *Net, c, _ net.Conn) {
			n.Set("a", "", Link{Delay: 70 * ms})
			n.Set("", "b", Link{Delay: 5 * ms})
			write(t, c, "x")
		}, text: "x", took: Base + 75*ms},
		"slow the other way": {do: func(t *testing.T, n *Net, c, _ net.Conn) { n.Set("b", "a", Link{Delay: 70 * ms}); write(t, c, "x") }, text: "x", took: Base},
		"lost always":        {do: func(t *testing.T, n *Net, c, _ net.Conn) { n.Set("a", "b", Link{Loss: 100}); write(t, c, "x") }, text: "x", took: Base + 63*RTO},
		"cut, and sent again": {do: func(t *testing.T, n *Net, c, _ net.Conn) {
			n.Set("a", "", Link{Cut: true})
			write(t, c, "x")
			time.Sleep(time.Second)
			n.Set("a", "", Link{})
		}, text: "x", took: 400*ms + Base}, // at 200, 600, 1400
		"cut under way": {do: func(t *testing.T, n *Net, c, _ net.Conn) {
			write(t, c, "x")
			n.Set("a", "b", Link{Cut: true})
			time.Sleep(ms)
			n.Set("a", "b", Link{})
		}, text: "x", took: 199*ms + Base},
		"only the other way is cut": {do: func(t *testing.T, n *Net, c, _ net.Conn) { n.Set("b", "a", Link{Cut: true}); write(t, c, "x") }, text: "x", took: Base},
		"cut for ever":              {do: func(t *testing.T, n *Net, c, _ net.Conn) { n.Set("a", "b", Link{Cut: true}); write(t, c, "x") }, err: syscall.ETIMEDOUT, took: Silence},
		"half open":                 {do: func(t *testing.T, n *Net, c, _ net.Conn) { n.HalfOpen("b", "a"); write(t, c, "x") }, err: syscall.ETIMEDOUT, took: Silence},
		"sender held": {do: func(t *testing.T, n *Net, c, _ net.Conn) {
			n.Host("a").Hold(true)
			write(t, c, "x")
			time.AfterFunc(time.Second, func() { n.Host("a").Hold(false) })
		}, text: "x", took: time.Second + Base},
		"reader held": {do: func(t *testing.T, n *Net, c, _ net.Conn) {
			n.Host("b").Hold(true)
			write(t, c, "x")
			time.AfterFunc(time.Second, func() { n.Host("b").Hold(false) })
		}, text: "x", took: time.Second},
		"end":                {do: func(_ *testing.T, _ *Net, c, _ net.Conn) { c.Close() }, err: io.EOF, took: Base},
		"half closed":        {do: func(_ *testing.T, _ *Net, c, _ net.Conn) { _ = c.(*conn).CloseWrite() }, err: io.EOF, took: Base},
		"read side closed":   {do: func(t *testing.T, _ *Net, c, s net.Conn) { write(t, c, "x"); _ = s.(*conn).CloseRead() }, err: io.EOF},
		"data, then the end": {do: func(t *testing.T, _ *Net, c, _ net.Conn) { write(t, c, "x"); c.Close() }, text: "x", took: Base},
		"closed unread":      {do: func(t *testing.T, _ *Net, c, s net.Conn) { write(t, s, "y"); time.Sleep(ms); c.Close() }, err: syscall.ECONNRESET, took: Base},
		"a reset does not overtake": {do: func(t *testing.T, n *Net, c, s net.Conn) {
			write(t, s, "y")
			time.Sleep(ms)
			n.Set("a", "b", Link{Delay: 70 * ms})
			write(t, c, "x")
			n.Set("a", "b", Link{})
			c.Close()
		}, text: "x", took: Base + 70*ms},
		"closed while data was under way": {do: func(t *testing.T, _ *Net, c, s net.Conn) {
			write(t, s, "y")
			c.Close()
			time.Sleep(3 * Base)
		}, err: syscall.EPIPE},
		"closed here":  {do: func(_ *testing.T, _ *Net, _, s net.Conn) { s.Close() }, err: net.ErrClosed},
		"closed later": {do: func(_ *testing.T, _ *Net, _, s net.Conn) { time.AfterFunc(ms, func() { s.Close() }) }, err: net.ErrClosed, took: ms},
		"deadline":     {do: func(_ *testing.T, _ *Net, _, s net.Conn) { s.SetReadDeadline(time.Now().Add(ms)) }, err: os.ErrDeadlineExceeded, took: ms},
		"past deadline": {do: func(t *testing.T, _ *Net, c, s net.Conn) {
			write(t, c, "x")
			time.Sleep(ms)
			s.SetDeadline(time.Unix(1, 0))
		}, err: os.ErrDeadlineExceeded},
		"later deadline": {do: func(_ *testing.T, _ *Net, _, s net.Conn) {
			time.AfterFunc(ms, func() { s.SetReadDeadline(time.Unix(1, 0)) })
		}, err: os.ErrDeadlineExceeded, took: ms},
		"reset":         {do: reset, err: syscall.ECONNRESET},
		"reset, client": {do: reset, err: syscall.ECONNRESET, end: "client"},
		"peer killed":   {do: func(_ *testing.T, n *Net, _, _ net.Conn) { n.Host("a").Kill() }, err: io.EOF, took: Base},
		"peer down":     {do: func(_ *testing.T, n *Net, _, _ net.Conn) { n.Host("a").Down() }, err: syscall.ETIMEDOUT, took: Silence},
		"peer began anew": {
			do: func(_ *testing.T, n *Net, _, _ net.Conn) {
				n.Host("a").Down()
				time.Sleep(time.Second)
				n.Host("a").Up()
			},
			err: syscall.ECONNRESET, took: KeepAlive + Base,
		},
		"peer began anew, and gets data": {do: func(t *testing.T, n *Net, _, s net.Conn) {
			n.Host("a").Down()
			n.Host("a").Up()
			write(t, s, "x")
		}, err: syscall.ECONNRESET, took: 2 * Base},
		"peer began anew, and gets data again": {do: func(t *testing.T, n *Net, _, s net.Conn) {
			n.Host("a").Down()
			write(t, s, "x")
			time.Sleep(100 * ms)
			n.Host("a").Up()
		}, err: syscall.ECONNRESET, took: 100*ms + 2*Base},
		"own host down, then anew": {do: func(_ *testing.T, n *Net, _, _ net.Conn) {
			n.Host("b").Down()
			time.AfterFunc(time.Second, n.Host("b").Up)
		}, err: net.ErrClosed, took: time.Second},
		"network ended": {do: func(_ *testing.T, n *Net, _, _ net.Conn) { time.AfterFunc(ms, n.Close) }, err: net.ErrClosed, took: ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, client, server := pair(t)
				defer n.Close()
				row.do(t, n, client, server)
				if row.end == "client" {
					server = client
				}
				if text, took, err := read(server); text != row.text || !errors.Is(err, row.err) || err != nil && row.err == nil || took != row.took {
					t.Errorf("%q, %v after %v; want %q, %v after %v", text, err, took, row.text, row.err, row.took)
				}
			})
		})
	}
}

// TestDials has one row for each thing that becomes of an attempt to connect.
func TestDials(t *testing.T) {
	for name, row := range map[string]struct {
		do   func(n *Net)
		err  error
		took time.Duration
	}{
		"answered":        {do: func(*Net) {}, took: 2 * Base},
		"slow both ways":  {do: func(n *Net) { n.Set("", "", Link{Delay: time.Second}) }, took: 2*Base + 2*time.Second},
		"nobody listens":  {do: func(n *Net) { n.Host("b").Kill(); n.Host("b").Up() }, err: syscall.ECONNREFUSED, took: 2 * Base},
		"killed":          {do: func(n *Net) { n.Host("b").Kill() }, err: syscall.ECONNREFUSED, took: 2 * Base},
		"down":            {do: func(n *Net) { n.Host("b").Down() }, err: context.DeadlineExceeded, took: 10 * time.Second},
		"cut":             {do: func(n *Net) { n.Set("a", "b", Link{Cut: true}) }, err: context.DeadlineExceeded, took: 10 * time.Second},
		"answer cut":      {do: func(n *Net) { n.Set("b", "a", Link{Cut: true}) }, err: context.DeadlineExceeded, took: 10 * time.Second},
		"held":            {do: func(n *Net) { n.Host("b").Hold(true) }, err: context.DeadlineExceeded, took: 10 * time.Second},
		"own host down":   {do: func(n *Net) { n.Host("a").Down() }, err: context.DeadlineExceeded, took: 10 * time.Second},
		"own program new": {do: func(n *Net) { n.Host("a").Down(); time.AfterFunc(time.Second, n.Host("a").Up) }, err: net.ErrClosed, took: time.Second},
		"network ended":   {do: func(n *Net) { n.Host("b").Down(); time.AfterFunc(time.Second, n.Close) }, err: net.ErrClosed, took: time.Second},
		"cut for 2 s": {do: func(n *Net) {
			n.Set("b", "", Link{Cut: true})
			time.AfterFunc(2*time.Second, func() { n.Set("b", "", Link{}) })
		}, took: 3*time.Second + 2*Base},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := New(1)
				defer n.Close()
				if _, err := n.Host("b").Listen(n.Host("b").Address() + ":80"); err != nil {
					t.Fatal(err)
				}
				n.Host("a")
				row.do(n)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				began := time.Now()
				_, err := n.Host("a").Dial(ctx, "tcp", n.Host("b").Address()+":80")
				if !errors.Is(err, row.err) || err != nil && row.err == nil || time.Since(began) != row.took {
					t.Errorf("%v after %v; want %v after %v", err, time.Since(began), row.err, row.took)
				}
			})
		})
	}
}

// TestBackpressure: a write returns while there is room, waits when there is none, and goes on
// as soon as something was read; so it does for a peer that is down, and whose answers are cut.
func TestBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, client, server := pair(t)
		defer n.Close()
		for _, cut := range []bool{false, true} {
			n.Set("b", "a", Link{Cut: cut})
			if wrote, err := client.Write(make([]byte, Buffer)); wrote != Buffer || err != nil {
				t.Fatal(wrote, err)
			}
			client.SetWriteDeadline(time.Now().Add(time.Second))
			if wrote, err := client.Write([]byte("x")); wrote != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a full queue: %d, %v", wrote, err)
			}
			client.SetWriteDeadline(time.Time{})
			began := time.Now()
			time.AfterFunc(time.Second, func() { _, _ = io.ReadFull(server, make([]byte, Buffer)) })
			want := time.Second
			if cut {
				want = 3 * time.Second
				time.AfterFunc(want, func() { n.Set("b", "a", Link{}) })
			}
			if wrote, err := client.Write([]byte("x")); wrote != 1 || err != nil || time.Since(began) != want {
				t.Errorf("answers cut: %v: %d, %v after %v", cut, wrote, err, time.Since(began))
			}
			_, _ = io.ReadFull(server, make([]byte, 1))
		}
		n.Host("b").Down()
		client.SetWriteDeadline(time.Now().Add(time.Second))
		if wrote, err := client.Write(make([]byte, Buffer+1)); wrote != Buffer || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a peer that is down: %d, %v", wrote, err)
		}
		if n.Counts()["writes that waited"] == 0 || n.Counts()["bytes queued"] != Buffer {
			t.Error(n.Counts())
		}
	})
}

// TestBytes: what arrives is what was written, in order, however the network changes meanwhile.
func TestBytes(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			n, client, server := pair(t)
			defer n.Close()
			rng := rand.New(rand.NewPCG(seed, 0))
			sent := make([]byte, 2<<20)
			for i := range sent {
				sent[i] = byte(rng.Uint32())
			}
			go func() {
				for b := sent; len(b) > 0; {
					part := b[:min(len(b), 1+rng.IntN(200<<10))]
					if _, err := client.Write(part); err != nil {
						t.Error(err)
						return
					}
					b = b[len(part):]
				}
				client.Close()
			}()
			faults := rand.New(rand.NewPCG(seed, 1))
			stop := make(chan struct{})
			go func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(faults.IntN(50)) * time.Millisecond):
					}
					from, to := "a", "b"
					if faults.IntN(2) == 0 {
						from, to = to, from
					}
					switch faults.IntN(3) {
					case 0:
						n.Host(from).Hold(faults.IntN(2) == 0)
					default:
						n.Set(from, to, Link{Delay: time.Duration(faults.IntN(50)) * time.Millisecond, Loss: faults.IntN(50), Cut: faults.IntN(3) == 0})
					}
				}
			}()
			time.AfterFunc(5*time.Second, func() {
				close(stop)
				n.Set("a", "b", Link{})
				n.Set("b", "a", Link{})
				n.Host("a").Hold(false)
				n.Host("b").Hold(false)
			})
			var got bytes.Buffer
			piece := make([]byte, 100<<10)
			for {
				read, err := server.Read(piece)
				got.Write(piece[:read])
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(got.Bytes(), sent) {
				t.Errorf("seed %d: %d bytes arrived, not those that were sent", seed, got.Len())
			}
			<-stop
		})
	}
}

// TestSeed: the same seed draws the same delays, another seed others.
func TestSeed(t *testing.T) {
	took := func(seed uint64) (took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			n := New(seed)
			defer n.Close()
			n.Set("", "", Link{Jitter: time.Second, Loss: 30})
			l, err := n.Host("b").Listen(":1")
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			c, err := n.Host("a").Dial(t.Context(), "tcp4", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			s, _ := l.Accept()
			write(t, c, "x")
			_, _, _ = read(s)
			took = time.Since(began)
		})
		return took
	}
	if first, again, other := took(1), took(1), took(2); first != again || first == other {
		t.Errorf("%v and %v; another seed: %v", first, again, other)
	}
}

// TestListen: what Listen refuses.
func TestListen(t *testing.T) {
	n := New(1)
	h := n.Host("a")
	n.Host("b")
	l, err := h.Listen("10.0.0.1:0")
	if err != nil || l.Addr().(*net.TCPAddr).Port < firstPort {
		t.Fatal(l, err)
	}
	for address, want := range map[string]error{l.Addr().String(): syscall.EADDRINUSE, "10.0.0.2:80": syscall.EADDRNOTAVAIL} {
		if _, err := h.Listen(address); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", address, err, want)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := h.Listen(l.Addr().String()); err != nil {
		t.Errorf("after Close: %v", err)
	}
	if _, err := h.Listen("a:x"); err == nil {
		t.Error("port x")
	}
}
