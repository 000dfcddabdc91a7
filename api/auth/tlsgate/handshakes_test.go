package tlsgate

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/log"
)

// named is an identity whose connections are not counted.
var named = matrix.Identity{Role: matrix.Operator, Name: "ada", Serial: "1"}

// from is a connection that came from an address.
type from struct {
	net.Conn
	address string
	closed  atomic.Bool
}

func (f *from) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(f.address), 1))
}

func (f *from) Close() error {
	f.closed.Store(true)
	return nil
}

// If all places are taken, a new connection gets the place of a silent one, first
// of the address that has most of them. A handshake in progress keeps its place.
func TestSilentOnesGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newHandshakeTable(time.Now)
		enter := func(address string) (*handshakeConn, *from) {
			raw := &from{address: address}
			g, err := c.enter(raw, t.Context().Done())
			if err != nil {
				t.Fatal(err)
			}
			return g, raw
		}
		g, slow := enter("192.0.2.1") // it has sent its first message, and answers slowly
		if err := g.acquireProcessor(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, honest := enter("192.0.2.2")
		var strangers []*from
		for range MaxHandshakes - 2 {
			_, raw := enter("198.51.100.7")
			strangers = append(strangers, raw)
		}
		began := time.Now()
		late, _ := enter("192.0.2.3")
		if took := time.Since(began); took != silentTime {
			t.Errorf("with all places taken by silent ones it took %v to get one, want %v", took, silentTime)
		}
		if late.time != busyTime {
			t.Errorf("a handshake among many may take %v, want %v", late.time, busyTime)
		}
		if honest.closed.Load() || slow.closed.Load() {
			t.Error("the place that was taken is not one of the address that has most")
		}
		gone := 0
		for _, raw := range strangers {
			if raw.closed.Load() {
				gone++
			}
		}
		if gone != 1 || len(c.pending) != MaxHandshakes {
			t.Errorf("%d strangers were closed for one place, %d places are taken", gone, len(c.pending))
		}
	})
}

// An address whose handshakes fail all the time is closed unheard for a while,
// and others are not.
func TestFailuresOfAnAddressAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newHandshakeTable(time.Now)
		fail := func(address string) error {
			g, err := c.enter(&from{address: address}, nil)
			if err == nil {
				_ = c.done(g, matrix.Identity{}, io.EOF)
				c.leave(g)
			}
			return err
		}
		for i := range FailedBurst {
			if err := fail("2001:db8::1"); err != nil {
				t.Fatalf("failure %d: %v", i, err)
			}
		}
		for _, address := range []string{"2001:db8::1", "2001:db8::ffff:2"} {
			if err := fail(address); !errors.Is(err, errFailing) {
				t.Errorf("%s after %d failures of its network: %v", address, FailedBurst, err)
			}
		}
		if err := fail("2001:db8:1::1"); err != nil {
			t.Errorf("another network: %v", err)
		}
		heard := 0
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			for range 50 {
				if fail("2001:db8::1") == nil {
					heard++
				}
			}
		}
		if heard > 10*FailedRate || heard < 9*FailedRate {
			t.Errorf("%d failures in 10 s, want about %d", heard, 10*FailedRate)
		}
		time.Sleep(time.Minute)
		if err := fail("2001:db8::1"); err != nil {
			t.Errorf("after a minute: %v", err)
		}
		for i := range 2 * maxFailing {
			_ = fail(fmt.Sprintf("2001:db8:%x:%x::1", i>>16, i&0xffff))
		}
		if n := len(c.failing); n > maxFailing {
			t.Errorf("failures of %d addresses are remembered, want at most %d", n, maxFailing)
		}
	})
}

// When strangers of many addresses fail, connections from addresses without an
// admission before are closed unheard. Connections from known addresses are not.
func TestFailuresOfAllAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newHandshakeTable(time.Now)
		knock := func(address string, result error) error {
			g, err := c.enter(&from{address: address}, nil)
			if err == nil {
				_ = c.done(g, named, result)
				c.leave(g)
			}
			return err
		}
		if err := knock("192.0.2.1", nil); err != nil {
			t.Fatal(err)
		}
		heard := 0
		for i := range 2 * AllFailedBurst {
			if knock(fmt.Sprintf("10.0.%d.%d", i/250, 1+i%250), io.EOF) == nil {
				heard++
			}
		}
		if heard != AllFailedBurst {
			t.Errorf("%d failed handshakes at once, want %d", heard, AllFailedBurst)
		}
		if err := knock("192.0.2.1", nil); err != nil {
			t.Errorf("a known address: %v", err)
		}
		if err := knock("192.0.2.2", nil); !errors.Is(err, errFailing) {
			t.Errorf("another: %v", err)
		}
		time.Sleep(time.Second)
		if err := knock("192.0.2.2", nil); err != nil {
			t.Errorf("another, a second later: %v", err)
		}
		g, err := c.enter(&from{address: "192.0.2.3"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.done(g, matrix.Identity{Role: matrix.Join}, nil); err != nil {
			t.Errorf("one without a certificate: %v, and it was let in", err)
		}
		c.leave(g)
		if _, known := c.known[siteOf(g.Conn.RemoteAddr())]; known {
			t.Error("an address is known for one without a certificate")
		}
	})
}

// A compute node that connects without end is closed, and its address with it; no
// other node is.
func TestArrivalsOfANodeAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newHandshakeTable(time.Now)
		arrive := func(node byte, address string) error {
			g, err := c.enter(&from{address: address}, nil)
			if err == nil {
				err = c.done(g, matrix.Identity{Role: matrix.CN, UUID: log.UUID{node}, Serial: "1"}, nil)
				c.leave(g)
			}
			return err
		}
		often, unheard := 0, 0
		for i := range ArrivalBurst + 2*FailedBurst {
			switch err := arrive(1, "192.0.2.1"); {
			case errors.Is(err, errOften):
				often++
			case errors.Is(err, errFailing):
				unheard++
			case err != nil || i >= ArrivalBurst:
				t.Fatalf("connection %d: %v", i, err)
			}
		}
		if often != FailedBurst || unheard != FailedBurst {
			t.Errorf("%d were told that they come too often, and %d were closed unheard, want %d and %d", often, unheard, FailedBurst, FailedBurst)
		}
		if err := arrive(2, "192.0.2.2"); err != nil {
			t.Errorf("another node: %v", err)
		}
		if err := arrive(1, "192.0.2.3"); !errors.Is(err, errOften) {
			t.Errorf("the node at another address: %v", err)
		}
		time.Sleep(time.Minute)
		if err := arrive(1, "192.0.2.1"); err != nil {
			t.Errorf("a minute later: %v", err)
		}
		for i := range maxArriving + 1 {
			c.mayArrive(log.UUID{1: byte(i), 2: byte(i >> 8), 3: byte(i >> 16)})
		}
		if n := len(c.arrived); n > maxArriving {
			t.Errorf("connections of %d nodes are remembered, want at most %d", n, maxArriving)
		}
	})
}

// Strangers who come at once fail at once: all of them count.
func TestFailuresAtOnceAreAllCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newHandshakeTable(time.Now)
		const seconds, atOnce = 10, 20
		heard := 0
		for i := range seconds * 50 {
			var under []*handshakeConn
			for j := range atOnce {
				if g, err := c.enter(&from{address: fmt.Sprintf("10.%d.%d.1", i%200, j)}, nil); err == nil {
					under = append(under, g)
				}
			}
			for _, g := range under {
				_ = c.done(g, matrix.Identity{}, io.EOF)
				c.leave(g)
			}
			heard += len(under)
			time.Sleep(time.Second / 50)
		}
		if most := AllFailedBurst + seconds*AllFailedRate + atOnce; heard > most {
			t.Errorf("%d handshakes of %d failed in %d s, want at most %d", heard, seconds*50*atOnce, seconds, most)
		}
	})
}

// Strangers who send nothing, hundreds more than there are places, keep no client
// out. Each failure is reported.
func TestSilentStrangersKeepNobodyOut(t *testing.T) {
	now := time.Now()
	a := newAuthority(t, pki.Clients, now)
	server, client := keep(t, identity(t, a, serverID, now, pki.Life)), keep(t, identity(t, a, cnID, now, pki.Life))
	var told atomic.Int64
	address := listen(t, server, Port{Name: "api", Failed: func(_ net.Addr, err error) {
		if err != nil {
			told.Add(1)
		}
	}})
	var held sync.WaitGroup
	release := make(chan struct{})
	t.Cleanup(held.Wait)
	t.Cleanup(func() { close(release) })
	var knocked sync.WaitGroup
	for i := range MaxHandshakes + 300 {
		knocked.Add(1)
		held.Go(func() {
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, byte(1+i%64), 1)}}
			conn, err := dialer.DialContext(t.Context(), "tcp", address)
			knocked.Done()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			<-release
		})
	}
	knocked.Wait()
	began := time.Now()
	conn, err := client.Dial(t.Context(), "tcp", address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if who, err := hear(conn); err != nil || who != cnID.Actor() {
		t.Errorf("got %q, %v", who, err)
	}
	t.Logf("let in after %v, with %d strangers told of", time.Since(began), told.Load())
	for deadline := time.Now().Add(time.Minute); told.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody was told of those who lost their place")
		}
	}
}
