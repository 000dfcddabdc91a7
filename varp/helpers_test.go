package varp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"rutter/log"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testPatience bounds each wait of a test for a peer; a test that works never
// spends it.
const testPatience = time.Minute

type vl2Key struct {
	vnet uint32
	mac  log.MAC
}

type vl3Key struct {
	vnet uint32
	ip   netip.Addr
}

type vl3Row struct {
	mac log.MAC
	at  Underlay
}

// table is a Lookup over two maps, which are not changed while it serves.
type table struct {
	vl2 map[vl2Key]Underlay
	vl3 map[vl3Key]vl3Row
}

func newTable() *table {
	return &table{vl2: map[vl2Key]Underlay{}, vl3: map[vl3Key]vl3Row{}}
}

func (tb *table) add(vnet uint32, mac log.MAC, ip netip.Addr, at Underlay) {
	tb.vl2[vl2Key{vnet, mac}] = at
	tb.vl3[vl3Key{vnet, ip}] = vl3Row{mac, at}
}

func (tb *table) VL2(vnet uint32, mac log.MAC) (Underlay, bool) {
	u, ok := tb.vl2[vl2Key{vnet, mac}]
	return u, ok
}

func (tb *table) VL3(vnet uint32, ip netip.Addr) (log.MAC, Underlay, bool) {
	row, ok := tb.vl3[vl3Key{vnet, ip}]
	return row.mac, row.at, ok
}

const vectorVNet = 4385813

func vectorMAC(i int) log.MAC { return log.MAC{0x90, 0x21, 0x12, 0, byte(i >> 8), byte(i)} }

func vectorIP(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 21, 12, byte(i)}) }

// vectorFixture is the state that svp-vectors.json describes.
func vectorFixture() *table {
	tb := newTable()
	cn := []Underlay{
		{netip.MustParseAddr("192.168.2.10"), 4789},
		{netip.MustParseAddr("192.168.2.11"), 4789},
		{netip.MustParseAddr("fd00:2::12"), 4790},
	}
	for i := range 50 {
		tb.add(vectorVNet, vectorMAC(i), vectorIP(i), cn[i%2])
	}
	tb.add(vectorVNet, vectorMAC(0x100), netip.MustParseAddr("fd00:21::14"), cn[2])
	return tb
}

// eventID is the id of the vectors' k-th event.
func eventID(k int) log.UUID {
	id, err := log.ParseUUID(fmt.Sprintf("11111111-2222-4333-8444-%012x", k))
	if err != nil {
		panic(err)
	}
	return id
}

// fixedEvents is an EventLog for one node that only records removals, and returns more
// than requested.
type fixedEvents struct {
	cn      netip.Addr
	records []Record

	mu      sync.Mutex
	removed []log.UUID
	by      []netip.Addr
	broken  bool
}

func vectorEvents(t testing.TB) *fixedEvents {
	t.Helper()
	e := &fixedEvents{cn: netip.MustParseAddr("192.168.2.10")}
	for k := range 60 {
		r := Record{Type: RecordVL2, ID: eventID(k), MAC: vectorMAC(k), VNet: vectorVNet}
		if k%2 == 1 {
			r = Record{Type: RecordVL3, ID: eventID(k), IP: vectorIP(k), VLAN: 4, VNet: vectorVNet}
		}
		e.records = append(e.records, r)
	}
	return e
}

func (e *fixedEvents) Events(dst []Record, cn netip.Addr, _ int) ([]Record, bool) {
	if cn != e.cn {
		return dst, !e.broken
	}
	return append(dst, e.records...), !e.broken
}

func (e *fixedEvents) Remove(cn netip.Addr, ids []log.UUID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.removed = append(e.removed, ids...)
	e.by = append(e.by, cn)
	return !e.broken
}

// startServer runs a server on loopback until the test ends.
func startServer(t testing.TB, cfg Config) (*Server, string) {
	t.Helper()
	s, err := NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s, runServer(t, s, "127.0.0.1:0")
}

func runServer(t testing.TB, s *Server, listen string) string {
	t.Helper()
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v, want nil when its context ends", err)
		}
		if open := s.Stats().Open; open != 0 {
			t.Errorf("%d connections open after Run", open)
		}
	})
	return ln.Addr().String()
}

func dialTCP(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(testPatience)); err != nil {
		t.Fatal(err)
	}
	return nc.(*net.TCPConn)
}

func write(t testing.TB, nc net.Conn, b []byte) {
	t.Helper()
	if _, err := nc.Write(b); err != nil {
		t.Fatal(err)
	}
}

func closeWrite(t testing.TB, nc *net.TCPConn) {
	t.Helper()
	if err := nc.CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

// readAll reads to the end of nc, a reset included.
func readAll(t testing.TB, nc net.Conn) []byte {
	t.Helper()
	b, err := io.ReadAll(nc)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatalf("the server neither answered nor closed: %v", err)
	}
	return b
}

// readMessage reads one message, byte-exact to its end.
func readMessage(t testing.TB, nc net.Conn) Message {
	t.Helper()
	b := make([]byte, HeaderSize)
	if _, err := io.ReadFull(nc, b); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, parseHeader(b).Size)
	if _, err := io.ReadFull(nc, body); err != nil {
		t.Fatal(err)
	}
	m, n, err := Split(append(b, body...), MaxBody)
	if n == 0 || err != nil {
		t.Fatalf("Split: %d bytes, error %v", n, err)
	}
	return m
}

// eventually waits until cond holds; what it waits for has no channel, being
// the server's counts.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(testPatience)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("never came about: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
