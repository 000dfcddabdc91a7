package varp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rutter/log"
)

func newTestClient(t testing.TB, cfg ClientConfig) *Client {
	t.Helper()
	c, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

func TestClient(t *testing.T) {
	events := vectorEvents(t)
	_, addr := startServer(t, Config{Lookup: vectorFixture(), Events: events})
	c := newTestClient(t, ClientConfig{Servers: []string{addr}})
	ctx := t.Context()
	if err := c.Ping(ctx); err != nil {
		t.Errorf("Ping: %v", err)
	}
	want := Underlay{netip.MustParseAddr("192.168.2.11"), 4789}
	if got, err := c.VL2(ctx, vectorVNet, vectorMAC(7)); got != want || err != nil {
		t.Errorf("VL2: %v, %v, want %v", got, err, want)
	}
	for _, ip := range []netip.Addr{vectorIP(7), netip.AddrFrom16(vectorIP(7).As16())} {
		if mac, got, err := c.VL3(ctx, vectorVNet, ip); mac != vectorMAC(7) || got != want || err != nil {
			t.Errorf("VL3 of %s: %v, %v, %v, want %v, %v", ip, mac, got, err, vectorMAC(7), want)
		}
	}
	want = Underlay{netip.MustParseAddr("fd00:2::12"), 4790}
	if mac, got, err := c.VL3(ctx, vectorVNet, netip.MustParseAddr("fd00:21::14")); mac != vectorMAC(0x100) || got != want || err != nil {
		t.Errorf("VL3 of IPv6: %v, %v, %v, want %v", mac, got, err, want)
	}
	if got, err := c.VL2(ctx, 7, vectorMAC(7)); got != (Underlay{}) || !errors.Is(err, ErrNotFound) {
		t.Errorf("VL2 on another vnet: %v, %v, want ErrNotFound", got, err)
	}
	records, err := c.LogRequest(ctx, events.cn, 1024)
	if err != nil || len(records) != 27 || records[26] != events.records[26] {
		t.Errorf("LogRequest: %d records, %v, want the first 27", len(records), err)
	}
	if err := c.LogRemove(ctx, []log.UUID{records[3].ID}); err != nil || len(events.removed) != 1 || events.removed[0] != eventID(3) {
		t.Errorf("LogRemove: %v, removed %v", err, events.removed)
	}
	events.mu.Lock()
	events.broken = true
	events.mu.Unlock()
	if _, err := c.LogRequest(ctx, events.cn, 1024); !errors.Is(err, ErrStatus) || !strings.Contains(err.Error(), "FATAL") {
		t.Errorf("LogRequest of a broken log: %v, want ErrStatus that says FATAL", err)
	}
	if _, err := c.LogRequest(ctx, events.cn, MaxBody+1); err == nil {
		t.Error("LogRequest over MaxBody was accepted")
	}
	if err := c.LogRemove(ctx, make([]log.UUID, maxLogRM+1)); err == nil {
		t.Error("LogRemove of too many was accepted")
	}
}

// TestClientPipelines: many callers share one connection, and their requests reach the
// server many at a time.
func TestClientPipelines(t *testing.T) {
	s, addr := startServer(t, Config{Lookup: vectorFixture()})
	c := newTestClient(t, ClientConfig{Servers: []string{addr}, MaxPending: 16})
	var askers sync.WaitGroup
	for asker := range 64 {
		askers.Go(func() {
			for i := range 100 {
				n := (asker + i) % 50
				if mac, _, err := c.VL3(t.Context(), vectorVNet, vectorIP(n)); err != nil || mac != vectorMAC(n) {
					t.Errorf("VL3 of %d: %v, %v", n, mac, err)
					return
				}
			}
		})
	}
	askers.Wait()
	st := s.Stats()
	if st.Accepted != 1 || st.VL3 != 6400 {
		t.Errorf("%d connections, %d lookups, want 1 and 6400", st.Accepted, st.VL3)
	}
}

// brokenServer answers each complete request with what reply returns: bytes, or nil to
// close. It counts its connections.
type brokenServer struct {
	addr  string
	conns atomic.Int64
}

func startBroken(t testing.TB, reply func(m Message) []byte) *brokenServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &brokenServer{addr: ln.Addr().String()}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			b.conns.Add(1)
			running.Go(func() { serveBroken(nc, reply) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		running.Wait()
	})
	return b
}

func serveBroken(nc net.Conn, reply func(m Message) []byte) {
	defer nc.Close()
	b, w := make([]byte, 4096), 0
	for {
		n, err := nc.Read(b[w:])
		if err != nil {
			return
		}
		w += n
		for {
			m, used, err := Split(b[:w], MaxBody)
			if used == 0 || err != nil {
				break
			}
			answer := reply(m)
			if answer == nil {
				return
			}
			if _, err := nc.Write(answer); err != nil {
				return
			}
			w = copy(b, b[used:w])
		}
	}
}

// TestClientBadReplies: each is an error of its kind, and none hangs.
func TestClientBadReplies(t *testing.T) {
	for _, c := range []struct {
		name  string
		reply func(m Message) []byte
		want  error
	}{
		{"CRC wrong", func(m Message) []byte { b := VL2Ack{}.Append(nil, m.ID); b[12] ^= 1; return b }, ErrBadReply},
		{"id not asked", func(m Message) []byte { return VL2Ack{}.Append(nil, m.ID+1) }, ErrBadReply},
		{"another op", func(m Message) []byte { return VL3Ack{}.Append(nil, m.ID) }, ErrBadReply},
		{"version 2", func(m Message) []byte { b := VL2Ack{}.Append(nil, m.ID); b[1] = 2; return resigned(b) }, ErrBadReply},
		{"short", func(m Message) []byte { return Append(nil, OpVL2Ack, m.ID, make([]byte, 19)) }, ErrBadReply},
		{"long", func(m Message) []byte { return Append(nil, OpVL2Ack, m.ID, make([]byte, 21)) }, ErrBadReply},
		{"4 GiB", func(Message) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") }, ErrBadReply},
		{"hangs up", func(Message) []byte { return nil }, ErrNoServer},
		{"silent", func(Message) []byte { return []byte{} }, ErrNoServer},
		{"FATAL", func(m Message) []byte { return VL2Ack{Status: StatusFatal}.Append(nil, m.ID) }, ErrStatus},
		{"twice", func(m Message) []byte {
			b := VL2Ack{Status: StatusNotFound}.Append(nil, m.ID)
			return append(b, b...)
		}, ErrNotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := startBroken(t, c.reply)
			client := newTestClient(t, ClientConfig{Servers: []string{b.addr}, AttemptTimeout: 2 * time.Second, MinBackoff: time.Millisecond})
			if _, err := client.VL2(t.Context(), 1, vectorMAC(1)); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// TestClientAnyOrder: replies are matched by id, so a server may answer later
// requests first.
func TestClientAnyOrder(t *testing.T) {
	var mu sync.Mutex
	var held []byte
	b := startBroken(t, func(m Message) []byte {
		mu.Lock()
		defer mu.Unlock()
		req, err := ParseVL2Req(m.Body)
		if err != nil {
			return nil
		}
		answer := VL2Ack{Underlay: Underlay{Addr: vectorIP(int(req.VNet)), Port: uint16(req.VNet)}}.Append(nil, m.ID)
		held = append(answer, held...) // the newest first
		if len(held) < 8*(HeaderSize+vl2AckSize) {
			return []byte{}
		}
		return held
	})
	c := newTestClient(t, ClientConfig{Servers: []string{b.addr}})
	var askers sync.WaitGroup
	for i := range 8 {
		askers.Go(func() {
			if u, err := c.VL2(t.Context(), uint32(i), vectorMAC(1)); err != nil || u.Port != uint16(i) {
				t.Errorf("asker %d: %v, %v", i, u, err)
			}
		})
	}
	askers.Wait()
}

// TestClientFailover: if the first server is dead, silent or broken, the next answers;
// a server that returns is used again.
func TestClientFailover(t *testing.T) {
	_, good := startServer(t, Config{Lookup: vectorFixture()})
	silent := startBroken(t, func(Message) []byte { return []byte{} })
	hangsUp := startBroken(t, func(Message) []byte { return nil })
	c := newTestClient(t, ClientConfig{
		Servers:        []string{"127.0.0.1:1", hangsUp.addr, silent.addr, good},
		AttemptTimeout: 2 * time.Second, // longer than a machine stands still
		MinBackoff:     time.Hour, MaxBackoff: time.Hour,
	})
	for range 3 {
		if _, err := c.VL2(t.Context(), vectorVNet, vectorMAC(1)); err != nil {
			t.Fatal(err)
		}
	}
	if got := [...]int64{silent.conns.Load(), hangsUp.conns.Load()}; got != [...]int64{1, 1} {
		t.Errorf("failed servers were connected to %v times, want once each", got)
	}
}

// TestClientReconnects: a server that was restarted under a live client is found again
// without an error for the caller.
func TestClientReconnects(t *testing.T) {
	s, err := NewServer(Config{Lookup: vectorFixture()})
	if err != nil {
		t.Fatal(err)
	}
	var dials []string
	var to atomic.Pointer[string]
	c := newTestClient(t, ClientConfig{
		Servers: []string{"svp.example:1296"},
		Resolve: func(context.Context, string) ([]netip.Addr, error) {
			dials = append(dials, "?")
			return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
		},
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials = append(dials, addr)
			return new(net.Dialer).DialContext(ctx, network, *to.Load())
		},
	})
	for range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := ln.Addr().String()
		to.Store(&addr)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx, ln) }()
		for range 2 {
			if err := c.Ping(t.Context()); err != nil {
				t.Errorf("Ping: %v", err)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if len(dials) < 6 || dials[4] != "?" || dials[5] != "192.0.2.1:1296" {
		t.Errorf("resolved and dialled %v, want both each time", dials)
	}
}

// TestClientContext: a caller that gives up leaves the connection to others, and its
// late reply is not taken for another's.
func TestClientContext(t *testing.T) {
	release := make(chan struct{})
	b := startBroken(t, func(m Message) []byte {
		if req, err := ParseVL2Req(m.Body); err == nil && req.VNet == 1 {
			<-release
		}
		return VL2Ack{Underlay: Underlay{Port: uint16(m.ID)}}.Append(nil, m.ID)
	})
	c := newTestClient(t, ClientConfig{Servers: []string{b.addr}})
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error, 1)
	go func() {
		_, err := c.VL2(ctx, 1, vectorMAC(1))
		gaveUp <- err
	}()
	eventually(t, "request under way", func() bool { return b.conns.Load() == 1 })
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	close(release)
	for range 3 {
		if _, err := c.VL2(t.Context(), 2, vectorMAC(1)); err != nil {
			t.Error(err)
		}
	}
	if got := b.conns.Load(); got > 2 {
		t.Errorf("%d connections", got)
	}
}

// TestClientClose: it unblocks callers, and the client is unusable afterwards.
func TestClientClose(t *testing.T) {
	asked := make(chan struct{}, 10)
	b := startBroken(t, func(Message) []byte { asked <- struct{}{}; return []byte{} })
	c := newTestClient(t, ClientConfig{Servers: []string{b.addr}, AttemptTimeout: time.Minute, Timeout: time.Minute})
	ended := make(chan error, 1)
	go func() { ended <- c.Ping(t.Context()) }()
	<-asked
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("asker got %v, want ErrClosed", err)
	}
	if err := c.Ping(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v, want ErrClosed", err)
	}
}

// TestClientCloseWhileDialling: Close does not wait for a server that does not
// accept.
func TestClientCloseWhileDialling(t *testing.T) {
	dialling := make(chan struct{})
	c := newTestClient(t, ClientConfig{
		Servers: []string{"192.0.2.1:1296"}, AttemptTimeout: time.Hour, Timeout: time.Hour,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			close(dialling)
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	ended := make(chan error, 1)
	go func() { ended <- c.Ping(t.Context()) }()
	<-dialling
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("asker got %v, want ErrClosed", err)
	}
}

// TestClientCutShort: a caller that gives up while the client waits to try a server
// again gets the error of that server.
func TestClientCutShort(t *testing.T) {
	refused := errors.New("refused by the test")
	ctx, cancel := context.WithCancel(t.Context())
	c := newTestClient(t, ClientConfig{
		Servers: []string{"192.0.2.1:1296"}, MinBackoff: time.Hour, MaxBackoff: time.Hour, Timeout: time.Hour,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			time.AfterFunc(time.Millisecond, cancel)
			return nil, refused
		},
	})
	if err := c.Ping(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, refused) {
		t.Errorf("got %v, want both that it was given up and %q", err, refused)
	}
}

func TestClientBackoff(t *testing.T) {
	c := newTestClient(t, ClientConfig{Servers: []string{"[::1]:1296"}})
	for failures, most := range map[int]time.Duration{1: 50, 2: 100, 4: 400, 7: 2000, 1000: 2000} {
		for range 100 {
			if got := c.backoff(failures); got < most*time.Millisecond/2 || got > most*time.Millisecond {
				t.Fatalf("after %d failures %s, want from %d to %d ms", failures, got, most/2, most)
			}
		}
	}
}

func TestClientConfigRefused(t *testing.T) {
	for i, cfg := range []ClientConfig{
		{},
		{Servers: []string{"10.0.0.1"}},
		{Servers: []string{":1296"}},
		{Servers: []string{"a:1", "fd00::1:1296:"}},
		{Servers: []string{"a:1"}, Timeout: -1},
	} {
		if c, err := NewClient(cfg); err == nil {
			t.Errorf("case %d: %v was accepted", i, fmt.Sprint(c.cfg.Servers))
		}
	}
}
