package varp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// names is a directory of names that a test changes, and counts its questions.
type names struct {
	mu    sync.Mutex
	addrs []netip.Addr
	err   error
	asked int
}

func (n *names) resolve(context.Context, string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	return n.addrs, n.err
}

func (n *names) set(err error, addrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addrs, n.err = nil, err
	for _, a := range addrs {
		n.addrs = append(n.addrs, netip.MustParseAddr(a))
	}
}

// TestClientNames: of a name's addresses the first that answers is used. The name is
// looked up again while requests continue. An address that it lost is left without a
// failed request, and a failed look-up changes nothing.
func TestClientNames(t *testing.T) {
	first, addr := startServer(t, Config{Lookup: vectorFixture()})
	second, addr2 := startServer(t, Config{Lookup: vectorFixture()})
	really := map[string]string{"192.0.2.1:1296": addr, "192.0.2.2:1296": addr2} // of documentation addresses, who is there
	var mu sync.Mutex
	var dialled []string
	dir := &names{}
	dir.set(nil, "192.0.2.9", "192.0.2.1", "::ffff:192.0.2.2")
	c := newTestClient(t, ClientConfig{
		Servers: []string{"svp.example.com:1296"}, Resolve: dir.resolve, ResolveEvery: time.Millisecond, MinBackoff: time.Millisecond,
		AttemptTimeout: testPatience,
		Dial: func(ctx context.Context, network, to string) (net.Conn, error) {
			mu.Lock()
			dialled = append(dialled, to)
			mu.Unlock()
			if really[to] == "" {
				return nil, errors.New("nobody there")
			}
			return new(net.Dialer).DialContext(ctx, network, really[to])
		},
	})
	ask := func() {
		t.Helper()
		if mac, _, err := c.VL3(t.Context(), vectorVNet, vectorIP(1)); err != nil || mac != vectorMAC(1) {
			t.Fatalf("VL3: %v, %v", mac, err)
		}
	}
	ask()
	if first.Stats().VL3 != 1 || len(dialled) != 2 || dialled[0] != "192.0.2.9:1296" {
		t.Fatalf("dialled %v, want the dead address and then the first server", dialled)
	}
	dir.set(errors.New("no name server"))
	for range 10 {
		ask()
		time.Sleep(2 * time.Millisecond) // longer than ResolveEvery
	}
	if got := first.Stats(); got.VL3 != 11 || got.Accepted != 1 {
		t.Errorf("without a name server: %d lookups on %d connections, want 11 on 1", got.VL3, got.Accepted)
	}
	dir.set(nil, "192.0.2.2")
	eventually(t, "the second server is asked", func() bool { ask(); return second.Stats().VL3 > 0 })
	eventually(t, "the first is left", func() bool { return first.Stats().Open == 0 })
}

// FuzzReplies: for any server, a client does not panic, and each caller gets exactly
// one reply.
func FuzzReplies(f *testing.F) {
	for _, v := range readVectors(f) {
		f.Add(unhex(f, v.Response))
		f.Add(append(unhex(f, v.Response), unhex(f, v.Response)...))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		near, far := net.Pipe()
		defer far.Close()
		c := newClientConn(near, 64, testPatience, new(atomic.Int64))
		var asked []*call
		for id, want := range map[uint32]Op{1: OpPong, 2: OpVL2Ack, 3: OpVL3Ack, 4: OpLogAck, 5: OpLogRMAck} {
			a := &call{want: want, reply: make(chan reply, 1)}
			c.slots <- struct{}{}
			c.pending[id] = a
			asked = append(asked, a)
		}
		used, err := c.deliver(in, MaxBody)
		if used > len(in) {
			t.Fatalf("used %d of %d bytes", used, len(in))
		}
		if err == nil {
			if _, n, err := Split(in[used:], MaxBody); n != 0 || err != nil {
				t.Errorf("a whole message was left: %d bytes, %v", n, err)
			}
			err = errors.New("end")
		}
		c.fail(err)
		for _, a := range asked {
			got := <-a.reply // each has exactly one
			if got.err == nil && a.want == OpLogAck {
				_, _, _ = ParseLogAck(got.body, nil)
			}
		}
	})
}
