package link

import (
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"rutter/projections/desired"

	"golang.org/x/sys/unix"

	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
)

const (
	movePackets = 1000 // a second
	moves       = 20
	moveEvery   = 50 * time.Millisecond
)

// TestNICMovesWithoutAGap: a VM sends 1,000 packets a second to a NIC that moves
// between two compute nodes, back and forth. Each packet must reach one of the two; at
// most one may be lost.
func TestNICMovesWithoutAGap(t *testing.T) {
	for _, mode := range []string{"ahead", "on demand"} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t)
			w.namespace("zA")
			a, _ := w.two(0, false)
			w.raw("cn2", unix.RTM_NEWADDR, flagsReplace, func(e *wire.Encoder) { e.Address(plan.Step{Prefix: prefix("10.99.0.3/24")}, 100) })
			truth, want := bookOf(a)
			if mode == "ahead" {
				want = a
			}
			g := guard(w, want, time.Hour)
			g.m.SetSource(truth)
			w.pass(g.m, want)
			answering(t, g.m)
			var old, now atomic.Int64
			w.counts(t, "10.99.0.2:4789", &old)
			w.counts(t, "10.99.0.3:4789", &now)
			send := w.sender(t, "zA", addr("192.168.5.2"))
			for end := time.Now().Add(patience); old.Load() == 0; time.Sleep(time.Millisecond) {
				if send(); time.Now().After(end) {
					t.Fatal("no packet came before the moves")
				}
			}
			time.Sleep(2 * moveEvery) // what is under way comes
			before, sent := old.Load()+now.Load(), int64(0)
			began, moved := time.Now(), 0
			for moved < moves {
				if time.Since(began) >= time.Duration(moved+1)*moveEvery {
					moved++
					to := a.FDB[0]
					to.Dst = netip.AddrFrom4([4]byte{10, 99, 0, byte(2 + moved%2)})
					truth.mu.Lock()
					truth.fdb[macKey{5, to.MAC}] = to
					truth.mu.Unlock()
					if result := g.m.Apply(t.Context(), desired.LinksDelta{FDB: []desired.FDB{to}}); len(result.Steps) != 1 {
						t.Fatalf("move %d: got %v, want one step", moved, texts(result.Steps))
					}
				}
				send()
				sent++
				time.Sleep(time.Second / movePackets) // after a standstill too: a burst would be the sockets' to lose
			}
			for end := time.Now().Add(10 * time.Second); old.Load()+now.Load()-before < sent && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			came := old.Load() + now.Load() - before
			t.Logf("%d packets during %d moves: %d came", sent, moves, came)
			if came < sent-1 {
				t.Errorf("%d packets were lost, at most 1 may be", sent-came)
			}
			if now.Load() == 0 {
				t.Error("no packet came to the other node")
			}
		})
	}
}

// counts counts the VXLAN packets with IPv4 that come to an address of cn2.
func (w *world) counts(t *testing.T, address string, n *atomic.Int64) {
	t.Helper()
	var conn net.PacketConn
	if err := w.within("cn2", func() (err error) {
		conn, err = net.ListenPacket("udp4", address)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		packet := make([]byte, 2048)
		for {
			size, _, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			if size > 22 && packet[20] == 8 && packet[21] == 0 { // EtherType IPv4, after VXLAN and the two MACs
				n.Add(1)
			}
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-ended
	})
}

// sender returns what sends one packet from a namespace.
func (w *world) sender(t *testing.T, namespace string, to netip.Addr) func() {
	t.Helper()
	fd := -1
	if err := w.within(namespace, func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return func() {
		if err := unix.Sendto(fd, []byte("packet"), 0, &unix.SockaddrInet4{Port: missPort, Addr: to.As4()}); err != nil {
			t.Fatal(err)
		}
	}
}
