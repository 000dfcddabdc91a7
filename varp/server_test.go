package varp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"rutter/log"
)

// appendLookup appends the i-th lookup of a mixed stream, with id i.
func appendLookup(dst []byte, i int) []byte {
	switch i % 4 {
	case 0:
		return VL2Req{MAC: vectorMAC(i % 50), VNet: vectorVNet}.Append(dst, uint32(i))
	case 1:
		return VL3Req{IP: vectorIP(i % 50), Type: L3TypeIPv4, VNet: vectorVNet}.Append(dst, uint32(i))
	case 2:
		return VL3Req{IP: vectorIP(200), Type: L3TypeIPv6, VNet: vectorVNet}.Append(dst, uint32(i))
	}
	return Append(dst, OpPing, uint32(i), nil)
}

// checkLookup reports what is wrong with the answer to the i-th lookup.
func checkLookup(t testing.TB, i int, got Message) {
	t.Helper()
	if got.ID != uint32(i) {
		t.Fatalf("answer %d has id %d: out of order", i, got.ID)
	}
	if want := []Op{OpVL2Ack, OpVL3Ack, OpVL3Ack, OpPong}[i%4]; got.Op != want {
		t.Fatalf("answer %d is %s, want %s", i, got.Op, want)
	}
	want := Underlay{netip.MustParseAddr("192.168.2.10"), 4789}
	if i%50%2 == 1 {
		want.Addr = netip.MustParseAddr("192.168.2.11")
	}
	switch i % 4 {
	case 0:
		if ack, err := ParseVL2Ack(got.Body); err != nil || ack != (VL2Ack{StatusOK, want}) {
			t.Fatalf("answer %d: %v, error %v, want %v", i, ack, err, want)
		}
	case 1:
		if ack, err := ParseVL3Ack(got.Body); err != nil || ack != (VL3Ack{StatusOK, vectorMAC(i % 50), want}) {
			t.Fatalf("answer %d: %v, error %v, want %v", i, ack, err, want)
		}
	case 2:
		if ack, err := ParseVL3Ack(got.Body); err != nil || ack != (VL3Ack{Status: StatusNotFound}) {
			t.Fatalf("answer %d: %v, error %v, want NOTFOUND", i, ack, err)
		}
	}
}

// TestServerPipelined: 10,000 requests in one stream are answered in order and
// in far fewer writes.
func TestServerPipelined(t *testing.T) {
	const requests = 10_000
	s, addr := startServer(t, Config{Lookup: vectorFixture()})
	nc := dialTCP(t, addr)
	var stream []byte
	for i := range requests {
		stream = appendLookup(stream, i)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := nc.Write(stream)
		sent <- err
	}()
	for i := range requests {
		checkLookup(t, i, readMessage(t, nc))
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	st := s.Stats()
	if st.Writes > requests/20 {
		t.Errorf("%d writes for %d requests, want far fewer", st.Writes, requests)
	}
	if got := [...]uint64{st.Pings, st.VL2, st.VL2Misses, st.VL3, st.VL3Misses}; got != [...]uint64{2500, 2500, 0, 5000, 2500} {
		t.Errorf("counts %v", got)
	}
}

// TestServerBytewise: it does not matter how a request is cut into segments.
func TestServerBytewise(t *testing.T) {
	_, addr := startServer(t, Config{Lookup: vectorFixture()})
	nc := dialTCP(t, addr)
	for i := range 8 {
		for _, b := range appendLookup(nil, i) {
			write(t, nc, []byte{b})
		}
		checkLookup(t, i, readMessage(t, nc))
	}
}

// TestServerOneSegment: header and body of an answer come in one write, which
// linux-cn-varpd cannot do without (spec/svp.md §4.5).
func TestServerOneSegment(t *testing.T) {
	_, addr := startServer(t, Config{Lookup: vectorFixture()})
	nc := dialTCP(t, addr)
	b := make([]byte, 4096)
	for i := range 100 {
		write(t, nc, appendLookup(nil, i))
		n, err := nc.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		m, used, err := Split(b[:n], MaxBody)
		if used != n || err != nil {
			t.Fatalf("read %d bytes, of which %d are a message, error %v", n, used, err)
		}
		checkLookup(t, i, m)
	}
}

// resigned returns msg with its CRC made right again.
func resigned(msg []byte) []byte {
	binary.BigEndian.PutUint32(msg[offCRC:], checksum(msg))
	return msg
}

// TestServerBadInput: requests before a bad message are answered, the bad one costs its
// connection, the reason is counted, and other connections continue.
func TestServerBadInput(t *testing.T) {
	badCRC := Append(nil, OpPing, 1, nil)
	badCRC[15] ^= 1
	flipped := VL2Req{VNet: 1}.Append(nil, 1)
	flipped[20] ^= 0x80
	huge := Append(nil, OpVL2Req, 1, nil)
	binary.BigEndian.PutUint32(huge[offSize:], 0xffffffff)
	over := Append(nil, OpPing, 1, make([]byte, MaxBody+1))
	for _, c := range []struct {
		name string
		send []byte
		want CloseReason
	}{
		{"CRC of the header wrong", badCRC, ClosedBadCRC},
		{"bit of the body flipped", flipped, ClosedBadCRC},
		{"4 GiB announced", huge, ClosedTooBig},
		{"one byte over the limit", over[:HeaderSize], ClosedTooBig},
		{"op 0", Append(nil, 0, 1, nil), ClosedBadOp},
		{"PONG", Append(nil, OpPong, 1, nil), ClosedBadOp},
		{"VL2_ACK", VL2Ack{}.Append(nil, 1), ClosedBadOp},
		{"VL3_ACK", VL3Ack{}.Append(nil, 1), ClosedBadOp},
		{"BULK_REQ", Append(nil, OpBulkReq, 1, make([]byte, 4)), ClosedBadOp},
		{"BULK_ACK", Append(nil, OpBulkAck, 1, make([]byte, 8)), ClosedBadOp},
		{"LOG_ACK", AppendLogAck(nil, 1, StatusOK, nil), ClosedBadOp},
		{"LOG_RM_ACK", AppendLogRMAck(nil, 1, StatusOK), ClosedBadOp},
		{"SHOOTDOWN", Shootdown{VNet: 1}.Append(nil, 1), ClosedBadOp},
		{"ROUTE_REQ", Append(nil, OpRouteReq, 1, make([]byte, 40)), ClosedBadOp},
		{"ROUTE_ACK", Append(nil, OpRouteAck, 1, make([]byte, 48)), ClosedBadOp},
		{"op 65535", Append(nil, 0xffff, 1, nil), ClosedBadOp},
		{"VL2_REQ empty", Append(nil, OpVL2Req, 1, nil), ClosedBadBody},
		{"VL2_REQ short", Append(nil, OpVL2Req, 1, make([]byte, 11)), ClosedBadBody},
		{"VL3_REQ short", Append(nil, OpVL3Req, 1, make([]byte, 23)), ClosedBadBody},
		{"LOG_REQ short", Append(nil, OpLogReq, 1, make([]byte, 19)), ClosedBadBody},
		{"LOG_RM short", Append(nil, OpLogRM, 1, make([]byte, 3)), ClosedBadBody},
		{"LOG_RM count too high", resigned(Append(nil, OpLogRM, 1, append([]byte{0, 0, 0, 2}, make([]byte, 16)...))), ClosedBadBody},
		{"LOG_RM count wraps", Append(nil, OpLogRM, 1, []byte{0x10, 0, 0, 0}), ClosedBadBody},
		{"HTTP", []byte("GET / HTTP/1.1\r\nHost: svp\r\n\r\n"), ClosedTooBig},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, addr := startServer(t, Config{Lookup: vectorFixture()})
			other := dialTCP(t, addr)
			nc := dialTCP(t, addr)
			write(t, nc, append(appendLookup(nil, 1), c.send...))
			got := readAll(t, nc)
			m, n, err := Split(got, MaxBody)
			if n != len(got) || n == 0 || err != nil {
				t.Fatalf("got %x, error %v, want just the answer to the good request", got, err)
			}
			checkLookup(t, 1, m)
			eventually(t, "one connection closed for "+c.want.String(), func() bool {
				return s.Stats().Closed[c.want] == 1
			})
			write(t, other, appendLookup(nil, 5))
			checkLookup(t, 5, readMessage(t, other))
		})
	}
}

// TestServerReset: a RST, which kills portolan, ends one connection.
func TestServerReset(t *testing.T) {
	s, addr := startServer(t, Config{Lookup: vectorFixture()})
	for i := range 20 {
		nc := dialTCP(t, addr)
		if i%2 == 0 {
			write(t, nc, appendLookup(nil, 1)[:20]) // in the middle of a request
		} else {
			write(t, nc, appendLookup(nil, 1))
			readMessage(t, nc)
		}
		if err := nc.SetLinger(0); err != nil {
			t.Fatal(err)
		}
		if err := nc.Close(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "20 resets counted", func() bool { return s.Stats().Closed[ClosedReset] == 20 })
	nc := dialTCP(t, addr)
	write(t, nc, appendLookup(nil, 3))
	checkLookup(t, 3, readMessage(t, nc))
}

// TestServerHalfClose: FIN within a request is no fault; a complete request before FIN
// is answered.
func TestServerHalfClose(t *testing.T) {
	s, addr := startServer(t, Config{Lookup: vectorFixture()})
	for i, send := range [][]byte{nil, {0, 1}, appendLookup(nil, 0)[:17], append(appendLookup(nil, 1), 0, 1)} {
		nc := dialTCP(t, addr)
		write(t, nc, send)
		closeWrite(t, nc)
		if got := readAll(t, nc); (len(got) > 0) != (i == 3) {
			t.Errorf("case %d: %d bytes back", i, len(got))
		}
	}
	eventually(t, "4 ordinary ends", func() bool { return s.Stats().Closed[ClosedByPeer] == 4 })
}

// TestServerSlowReader: a peer that pipelines and never reads is cut off, with
// what is held for it bounded.
func TestServerSlowReader(t *testing.T) {
	s, addr := startServer(t, Config{Lookup: vectorFixture(), WriteTimeout: 50 * time.Millisecond})
	// Its buffer stays as it is. The kernel drops what a buffer that shrank has no room for,
	// and with it the acknowledgements of the requests: the server may then wait for more.
	nc := dialTCP(t, addr)
	var block []byte
	for i := range 1000 {
		block = appendLookup(block, i)
	}
	go func() {
		for err := error(nil); err == nil; {
			_, err = nc.Write(block)
		}
	}()
	eventually(t, "cut off as a slow reader", func() bool { return s.Stats().Closed[ClosedSlowReader] == 1 })
	// A kernel whose program reads nothing may have no room for the reset.
	if _, err := io.Copy(io.Discard, nc); isTimeout(err) {
		t.Errorf("the peer was not told: %v", err)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// TestServerSlowRequest: bytes that arrive slowly do not keep a request alive, and a
// connection between requests stays open.
func TestServerSlowRequest(t *testing.T) {
	s, addr := startServer(t, Config{Lookup: vectorFixture(), MessageTimeout: 2 * time.Second}) // longer than a machine stands still
	quiet := dialTCP(t, addr)
	write(t, quiet, append(appendLookup(nil, 1), appendLookup(nil, 5)[:20]...))
	checkLookup(t, 1, readMessage(t, quiet))
	write(t, quiet, appendLookup(nil, 5)[20:])
	checkLookup(t, 5, readMessage(t, quiet))

	slow := dialTCP(t, addr)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	request := AppendLogRM(nil, 1, make([]log.UUID, 1000))
	sent := 0
	for ; sent < len(request); sent++ {
		<-tick.C
		if _, err := slow.Write(request[sent : sent+1]); err != nil {
			break
		}
	}
	if sent == len(request) {
		t.Error("a request that took 80 s was borne")
	}
	eventually(t, "cut off as a slow request", func() bool { return s.Stats().Closed[ClosedSlowRequest] == 1 })
	write(t, quiet, appendLookup(nil, 9))
	checkLookup(t, 9, readMessage(t, quiet))
}

// TestServerMaxConns: over the limit new connections are refused while all are busy;
// one that has been idle for long enough is closed.
func TestServerMaxConns(t *testing.T) {
	s, err := NewServer(Config{Lookup: vectorFixture(), MaxConns: 3, IdleTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	addr := runServer(t, s, "127.0.0.1:0")
	var held []*net.TCPConn
	for i := range 3 {
		nc := dialTCP(t, addr)
		write(t, nc, appendLookup(nil, i))
		checkLookup(t, i, readMessage(t, nc))
		held = append(held, nc)
	}
	if got := readAll(t, dialTCP(t, addr)); len(got) > 0 {
		t.Errorf("refused connection got %x", got)
	}
	eventually(t, "one refused for want of a place", func() bool { return s.Stats().Closed[ClosedNoPlace] == 1 })

	s.mu.Lock()
	for c := range s.conns {
		if c.nc.RemoteAddr().String() == held[1].LocalAddr().String() {
			c.lastUse.Store(time.Now().Add(-2 * time.Hour).UnixNano())
		}
	}
	s.mu.Unlock()
	nc := dialTCP(t, addr)
	write(t, nc, appendLookup(nil, 7))
	checkLookup(t, 7, readMessage(t, nc))
	if got := readAll(t, held[1]); len(got) > 0 {
		t.Errorf("idle connection got %x", got)
	}
	eventually(t, "one closed for idleness", func() bool { return s.Stats().Closed[ClosedIdle] == 1 })
	for _, i := range []int{0, 2} {
		write(t, held[i], appendLookup(nil, i))
		checkLookup(t, i, readMessage(t, held[i]))
	}
}

// TestServerAllow: addresses outside the list get no byte, and one line of the log names
// them and says what to do, for many connections.
func TestServerAllow(t *testing.T) {
	var said lines
	s, addr := startServer(t, Config{Logger: slog.New(slog.NewTextHandler(&said, nil)), Lookup: vectorFixture(), Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if got := readAll(t, dialTCP(t, addr)); len(got) > 0 {
		t.Errorf("got %x", got)
	}
	if got := readAll(t, dialTCP(t, addr)); len(got) > 0 {
		t.Errorf("got %x", got)
	}
	if got := s.Stats().Closed[ClosedNotAllowed]; got != 2 {
		t.Errorf("%d counted as not allowed, want 2", got)
	}
	if got := said.String(); strings.Count(got, "may not ask") != 1 || !strings.Contains(got, "peer=127.0.0.1") || !strings.Contains(got, "give it a NIC") {
		t.Errorf("the log says %q", got)
	}
}

// TestServerAllowsMapped: a dual-stack listener sees IPv4 peers as mapped
// addresses, which an IPv4 prefix must cover.
func TestServerAllowsMapped(t *testing.T) {
	s, err := NewServer(Config{Lookup: vectorFixture(), Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(runServer(t, s, ":0"))
	if err != nil {
		t.Fatal(err)
	}
	nc := dialTCP(t, "127.0.0.1:"+port)
	write(t, nc, appendLookup(nil, 3))
	checkLookup(t, 3, readMessage(t, nc))
}

// TestServerBuffersBounded: what a connection holds stays within its bounds,
// whatever it is asked (Config.MaxConns has the sum).
func TestServerBuffersBounded(t *testing.T) {
	events := vectorEvents(t)
	for len(events.records) < 500 {
		events.records = append(events.records, events.records[:60]...)
	}
	s, err := NewServer(Config{Lookup: vectorFixture(), Events: events})
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	c := newConn(s, nil, ours)
	ended := make(chan error, 1)
	go func() { ended <- c.run() }()
	drained := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(io.Discard, theirs) // ends when the pipe is closed
		drained <- n
	}()
	var stream []byte
	for i := range 500 {
		stream = appendLookup(stream, i)
		stream = LogReq{Count: 1<<32 - 1, CN: events.cn}.Append(stream, 1)
		if i%50 == 0 {
			stream = AppendLogRM(stream, 2, make([]log.UUID, maxLogRM))
			stream = Append(stream, OpPing, 3, make([]byte, MaxBody))
		}
	}
	write(t, theirs, stream)
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended
	if n := <-drained; n < 499*MaxBody/2 {
		t.Errorf("%d bytes answered: the stream was not served", n)
	}
	recordSize, idSize := 64, 16 // bytes in memory
	held := cap(c.in) + cap(c.out) + recordSize*cap(c.records) + idSize*cap(c.ids)
	if held > 160<<10 || cap(c.in) > maxReadBuf {
		t.Errorf("holds %d bytes: in %d, out %d, records %d, ids %d", held, cap(c.in), cap(c.out), cap(c.records), cap(c.ids))
	}
}

// missing is a Lookup whose rows lack an address.
type missing struct{}

func (missing) VL2(uint32, log.MAC) (Underlay, bool) { return Underlay{Port: 4789}, true }

func (missing) VL3(uint32, netip.Addr) (log.MAC, Underlay, bool) {
	return vectorMAC(1), Underlay{Addr: netip.IPv6Unspecified(), Port: 4789}, true
}

// TestServerNotFoundIsZero: NOTFOUND carries nothing else, neither for a node
// without an underlay address nor for a vnet beyond 24 bits.
func TestServerNotFoundIsZero(t *testing.T) {
	_, addr := startServer(t, Config{Lookup: missing{}})
	nc := dialTCP(t, addr)
	for _, vnet := range []uint32{1, log.MaxVNet + 1, 1<<32 - 1} {
		write(t, nc, VL2Req{MAC: vectorMAC(1), VNet: vnet}.Append(nil, 1))
		if got, want := readMessage(t, nc).Body, append([]byte{0, 2}, make([]byte, 18)...); !bytes.Equal(got, want) {
			t.Errorf("VL2 on vnet %d: %x, want %x", vnet, got, want)
		}
		write(t, nc, VL3Req{IP: vectorIP(1), VNet: vnet}.Append(nil, 2))
		if got, want := readMessage(t, nc).Body, append([]byte{0, 0, 0, 2}, make([]byte, 24)...); !bytes.Equal(got, want) {
			t.Errorf("VL3 on vnet %d: %x, want %x", vnet, got, want)
		}
	}
}

// flakyListener fails now and then, as Accept does with no descriptor left.
type flakyListener struct {
	net.Listener
	calls int
}

func (l *flakyListener) Accept() (net.Conn, error) {
	if l.calls++; l.calls%2 == 1 {
		return nil, errors.New("too many open files")
	}
	return l.Listener.Accept()
}

// TestServerAcceptErrors: the server survives an error of the listener, and reports a
// listener that was closed from outside.
func TestServerAcceptErrors(t *testing.T) {
	s, err := NewServer(Config{Lookup: vectorFixture()})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(context.Background(), &flakyListener{Listener: ln}) }()
	nc := dialTCP(t, ln.Addr().String())
	write(t, nc, appendLookup(nil, 3))
	checkLookup(t, 3, readMessage(t, nc))
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Run: %v, want net.ErrClosed", err)
	}
	if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("connection after Run: %v, want EOF", err)
	}
	if s.Stats().AcceptErrors == 0 {
		t.Error("no accept error counted")
	}
}

func TestServerConfig(t *testing.T) {
	for _, cfg := range []Config{
		{},
		{Lookup: newTable(), MaxConns: -1},
		{Lookup: newTable(), WriteTimeout: -1},
		{Lookup: newTable(), Allow: []netip.Prefix{{}}},
	} {
		if _, err := NewServer(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}
