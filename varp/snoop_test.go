package varp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"rutter/log"
)

// startSnoop runs a snoop before a server until the test ends or stop is
// called, which returns what Run did.
func startSnoop(t *testing.T, cfg SnoopConfig) (addr string, stop func() error) {
	t.Helper()
	s, err := NewSnoop(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, ln) }()
	var result error
	stopped := false
	stop = func() error {
		if !stopped {
			cancel()
			result, stopped = <-ended, true
		}
		return result
	}
	t.Cleanup(func() { _ = stop() })
	return ln.Addr().String(), stop
}

var (
	traceTime = regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\.\d{6} 127\.0\.0\.1:\d+ `)
	traceTook = regexp.MustCompile(`  [0-9.]+(µs|ms)`)
	tracePort = regexp.MustCompile(`127\.0\.0\.1:\d+`)
)

// TestSnoop: the trace of one connection, word for word except times, and every answer
// unchanged.
func TestSnoop(t *testing.T) {
	events := vectorEvents(t)
	events.records = events.records[:2]
	_, server := startServer(t, Config{Lookup: vectorFixture(), Events: events})
	var out lines
	addr, stop := startSnoop(t, SnoopConfig{Upstream: server, Out: &out})
	nc := dialTCP(t, addr)
	for _, request := range [][]byte{
		Append(nil, OpPing, 0xffffffff, nil),
		VL3Req{IP: vectorIP(7), Type: L3TypeIPv6, VNet: vectorVNet}.Append(nil, 7),
		VL3Req{IP: netip.MustParseAddr("10.9.9.9"), Type: L3TypeIPv4, VNet: vectorVNet}.Append(nil, 8),
		VL2Req{MAC: vectorMAC(7), VNet: vectorVNet}.Append(nil, 9),
		VL2Req{MAC: vectorMAC(7), VNet: 5}.Append(nil, 9),
		LogReq{Count: 1024, CN: events.cn}.Append(nil, 10),
		AppendLogRM(nil, 11, []log.UUID{eventID(0), eventID(1)}),
	} {
		write(t, nc, request)
		readMessage(t, nc)
	}
	write(t, nc, Append(nil, OpShoot, 12, nil))
	if rest := readAll(t, nc); len(rest) > 0 {
		t.Errorf("got %x after an op that is not served", rest)
	}
	_ = nc.Close()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	got := traceTook.ReplaceAllString(traceTime.ReplaceAllString(out.text.String(), ""), "  TOOK")
	got = tracePort.ReplaceAllString(got, "SERVER")
	want := `connected, to SERVER
PING     id ffffffff -> PONG of version 1  TOOK
VL3_REQ  id 00000007  vnet 4385813 10.21.12.7 type 0x2 -> OK 90:21:12:00:00:07 at 192.168.2.11 port 4789  TOOK
VL3_REQ  id 00000008  vnet 4385813 10.9.9.9 type 0x1 -> NOTFOUND  TOOK
VL2_REQ  id 00000009  vnet 4385813 90:21:12:00:00:07 -> OK at 192.168.2.11 port 4789  TOOK
VL2_REQ  id 00000009  vnet 5 90:21:12:00:00:07 -> NOTFOUND  TOOK
LOG_REQ  id 0000000a  of 192.168.2.10, 1024 bytes at most -> OK, 2 records in 80 bytes  TOOK
    VL2 vnet 4385813 90:21:12:00:00:00  11111111-2222-4333-8444-000000000000
    VL3 vnet 4385813 vlan 4 10.21.12.1  11111111-2222-4333-8444-000000000001
LOG_RM   id 0000000b  2 records -> OK  TOOK
closed, 1 requests without an answer
`
	if got != want {
		t.Errorf("trace:\n%s\nwant:\n%s", got, want)
	}
}

// TestSnoopVectors: every recorded exchange goes through unchanged.
func TestSnoopVectors(t *testing.T) {
	_, server := startServer(t, Config{Lookup: vectorFixture(), Events: vectorEvents(t)})
	var out lines
	addr, _ := startSnoop(t, SnoopConfig{Upstream: server, Out: &out})
	exchange := func(to string, request []byte) []byte {
		nc := dialTCP(t, to)
		write(t, nc, request)
		closeWrite(t, nc)
		return readAll(t, nc)
	}
	for _, v := range readVectors(t) {
		request := unhex(t, v.Request)
		if direct, through := exchange(server, request), exchange(addr, request); !bytes.Equal(direct, through) {
			t.Errorf("%s: through the snoop %x, directly %x", v.Name, through, direct)
		}
	}
}

// TestSnoopBadBytes: bytes that are not SVP, in either direction, are printed in
// hexadecimal and forwarded; so are a wrong CRC and what follows it.
func TestSnoopBadBytes(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	badCRC := Append(nil, OpPong, 5, nil)
	badCRC[15] ^= 1
	version2 := Append(nil, OpPong, 6, nil)
	version2[1] = 2
	binary.BigEndian.PutUint32(version2[offCRC:], checksum(version2))
	reply := append(append(badCRC, version2...), "HTTP/1.1 400 Bad Request\r\n\r\n"...)
	heard := make(chan []byte, 1)
	go func() {
		nc, err := ln.Accept()
		if err != nil {
			heard <- nil
			return
		}
		b, _ := io.ReadAll(nc)
		_, _ = nc.Write(reply)
		_ = nc.Close()
		heard <- b
	}()
	var out lines
	addr, stop := startSnoop(t, SnoopConfig{Upstream: ln.Addr().String(), Out: &out})
	nc := dialTCP(t, addr)
	request := append(Append(nil, 99, 5, []byte("abc")), "GET / HTTP/1.1\r\n\r\n"...)
	write(t, nc, request)
	closeWrite(t, nc)
	if got := readAll(t, nc); !bytes.Equal(got, reply) {
		t.Errorf("client got %q, want %q", got, reply)
	}
	if got := <-heard; !bytes.Equal(got, request) {
		t.Errorf("server got %q, want %q", got, request)
	}
	_ = nc.Close()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"op 99    id 00000005  not understood, 3 bytes: 616263 -> PONG of version 1  (wrong CRC)",
		"id 00000006 -> PONG of version 2  (version 2)  (nobody asked)",
		"> a length of 790644820, 18 bytes: 474554202f20485454502f312e310d0a0d0a\n",
		"< a length of ", "485454502f312e312034303020426164",
	} {
		if !strings.Contains(out.text.String(), want) {
			t.Errorf("the trace lacks %q:\n%s", want, out.text.String())
		}
	}
}

// TestSnoopReset: a reset of one side resets the other, and the snoop goes on.
func TestSnoopReset(t *testing.T) {
	s, server := startServer(t, Config{Lookup: vectorFixture()})
	var out lines
	addr, _ := startSnoop(t, SnoopConfig{Upstream: server, Out: &out})
	for range 20 {
		nc := dialTCP(t, addr)
		write(t, nc, appendLookup(nil, 1))
		readMessage(t, nc)
		_ = nc.SetLinger(0)
		_ = nc.Close()
	}
	eventually(t, "the server saw resets", func() bool { return s.Stats().Closed[ClosedReset] == 20 })
	nc := dialTCP(t, addr)
	write(t, nc, appendLookup(nil, 1))
	checkLookup(t, 1, readMessage(t, nc))
}

// brokenPipe is an Out that fails.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// stuck is an Out that takes nothing until it is let go.
type stuck chan struct{}

func (s stuck) Write(b []byte) (int, error) { <-s; return len(b), nil }

// TestSnoopOut: a slow reader of the trace delays nothing; when it is gone the snoop
// ends with an error.
func TestSnoopOut(t *testing.T) {
	_, server := startServer(t, Config{Lookup: vectorFixture()})
	slow := make(stuck)
	addr, _ := startSnoop(t, SnoopConfig{Upstream: server, Out: slow})
	nc := dialTCP(t, addr)
	for i := range 2 * snoopLines {
		write(t, nc, appendLookup(nil, i%50))
		checkLookup(t, i%50, readMessage(t, nc))
	}
	close(slow)

	addr, stop := startSnoop(t, SnoopConfig{Upstream: server, Out: brokenPipe{}})
	if nc, err := net.Dial("tcp", addr); err == nil { // the end may come first
		_, _ = io.Copy(io.Discard, nc)
		_ = nc.Close()
	}
	if err := stop(); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Run: %v, want the error of Out", err)
	}
}

// TestSnoopLimits: over MaxConns, and without a server, a client is closed.
func TestSnoopLimits(t *testing.T) {
	_, server := startServer(t, Config{Lookup: vectorFixture()})
	var out, none lines
	addr, _ := startSnoop(t, SnoopConfig{Upstream: server, Out: &out, MaxConns: 1})
	first := dialTCP(t, addr)
	write(t, first, appendLookup(nil, 1))
	readMessage(t, first)
	readAll(t, dialTCP(t, addr))
	addr, stop := startSnoop(t, SnoopConfig{Upstream: "127.0.0.1:1", Out: &none, DialTimeout: time.Second})
	readAll(t, dialTCP(t, addr))
	if err := stop(); err != nil || !strings.Contains(none.text.String(), "no server: ") {
		t.Errorf("Run: %v, trace %q", err, none.text.String())
	}
	for _, cfg := range []SnoopConfig{{Out: &out}, {Upstream: "x:1"}, {Upstream: "x", Out: &out}, {Upstream: "x:1", Out: &out, MaxConns: -1}} {
		if _, err := NewSnoop(cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}
