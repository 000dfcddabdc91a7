package varp

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// long reports whether the long forms of tests are wanted.
func long() bool { return os.Getenv("RUTTER_LONG") != "" }

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestServerMaxConnsPerPeer: one address cannot use the connections of others. Among
// its own, an idle one is closed.
func TestServerMaxConnsPerPeer(t *testing.T) {
	lines := new(lockedBuffer)
	s, addr := startServer(t, Config{Lookup: vectorFixture(), MaxConnsPerPeer: 2, IdleTimeout: time.Hour, Logger: slog.New(slog.NewTextHandler(lines, nil))})
	from := func(local string) *net.TCPConn {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(local)}}
		nc, err := d.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		if err := nc.SetDeadline(time.Now().Add(testPatience)); err != nil {
			t.Fatal(err)
		}
		return nc.(*net.TCPConn)
	}
	served := func(nc *net.TCPConn) {
		t.Helper()
		write(t, nc, appendLookup(nil, 3))
		checkLookup(t, 3, readMessage(t, nc))
	}
	first, second := from("127.0.0.2"), from("127.0.0.2")
	served(first)
	served(second)
	if got := readAll(t, from("127.0.0.2")); len(got) > 0 {
		t.Errorf("the third of an address got %x", got)
	}
	eventually(t, "one refused for its peer", func() bool { return s.Stats().Closed[ClosedPeerLimit] == 1 })
	eventually(t, "a line about it", func() bool { return strings.Contains(lines.String(), "limit=2 refused=1 do=") })
	for range 3 { // no line for each
		readAll(t, from("127.0.0.2"))
	}
	eventually(t, "all refused", func() bool { return s.Stats().Closed[ClosedPeerLimit] == 4 })
	if text := lines.String(); strings.Count(text, "connections refused") != 1 || !strings.Contains(text, "peer=127.0.0.2") {
		t.Errorf("the log has %q, want one line about 127.0.0.2", text)
	}
	other := from("127.0.0.3")
	served(other)

	s.mu.Lock()
	for c := range s.conns {
		c.lastUse.Store(time.Now().Add(-2 * time.Hour).UnixNano())
	}
	s.mu.Unlock()
	served(second)
	third := from("127.0.0.2")
	served(third)
	if got := readAll(t, first); len(got) > 0 {
		t.Errorf("the idle one got %x", got)
	}
	for _, nc := range []*net.TCPConn{second, third, other} {
		served(nc)
	}
	_ = first.Close()
	_ = second.Close()
	eventually(t, "two left", func() bool { return s.Stats().Open == 2 })
	served(from("127.0.0.2"))
}

// hostileTimeout is how long the server under attack waits for a request's end, and for
// a reader. It is long, so that an honest client is not cut off on a machine that
// stands still for a moment.
const hostileTimeout = time.Second

// attacks are what makes portolan fail, and worse. Each gets a new connection and
// leaves it in any state.
var attacks = []func(nc *net.TCPConn, dice *rand.Rand){
	func(nc *net.TCPConn, _ *rand.Rand) { // RST in the midst of a request
		_ = nc.SetLinger(0)
		_, _ = nc.Write(appendLookup(nil, 1)[:20])
	},
	func(nc *net.TCPConn, dice *rand.Rand) { // noise
		b := make([]byte, dice.IntN(4096))
		for i := range b {
			b[i] = byte(dice.Uint32())
		}
		_, _ = nc.Write(b)
	},
	func(nc *net.TCPConn, _ *rand.Rand) { // 4 GiB announced, and some sent
		b := Append(nil, OpVL2Req, 1, nil)
		binary.BigEndian.PutUint32(b[offSize:], 1<<32-1)
		_, _ = nc.Write(append(b, make([]byte, 64<<10)...))
	},
	func(nc *net.TCPConn, dice *rand.Rand) { // one byte wrong
		b := appendLookup(nil, 1)
		b[dice.IntN(len(b))] ^= byte(1 + dice.IntN(255))
		_, _ = nc.Write(b)
		_, _ = nc.Read(b)
	},
	func(nc *net.TCPConn, dice *rand.Rand) { // any op, any body, CRC right
		for range 20 {
			_, _ = nc.Write(Append(nil, Op(dice.IntN(18)), dice.Uint32(), make([]byte, dice.IntN(64))))
		}
	},
	func(nc *net.TCPConn, _ *rand.Rand) { // asks much, reads nothing
		var b []byte
		for range 2000 {
			b = LogReq{Count: 1<<32 - 1, CN: netip.AddrFrom4([4]byte{192, 168, 2, 10})}.Append(b, 1)
		}
		_ = nc.SetReadBuffer(4096)
		_ = nc.SetWriteDeadline(time.Now().Add(2 * hostileTimeout))
		for range 20 {
			if _, err := nc.Write(b); err != nil {
				return
			}
		}
		time.Sleep(2 * hostileTimeout)
	},
	func(nc *net.TCPConn, _ *rand.Rand) { // trickles
		for _, b := range appendLookup(nil, 1)[:8] {
			if _, err := nc.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(hostileTimeout / 6)
		}
	},
	func(nc *net.TCPConn, _ *rand.Rand) { // half-open
		_ = nc.CloseWrite()
		_, _ = nc.Read(make([]byte, 1))
	},
	func(*net.TCPConn, *rand.Rand) { // says nothing
		time.Sleep(100 * time.Millisecond)
	},
}

// TestHostileMinute: during all attacks at once an honest client gets each answer,
// right and soon, and memory stays flat. Five seconds, a minute if RUTTER_LONG is set.
func TestHostileMinute(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	if testing.Short() {
		t.Skip("takes five seconds; run without -short")
	}
	t.Parallel()
	lasts := 5 * time.Second
	if long() {
		lasts = time.Minute
	}
	events := vectorEvents(t)
	s, addr := startServer(t, Config{
		Lookup: vectorFixture(), Events: events, MaxConns: 100, MaxConnsPerPeer: 60,
		MessageTimeout: hostileTimeout, WriteTimeout: hostileTimeout, IdleTimeout: time.Second,
	})
	honest := dialTCP(t, addr)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running sync.WaitGroup
	for i := range 2 * len(attacks) {
		running.Go(func() { attack(ctx, addr, i) })
	}
	answered, slowest, early, later := 0, time.Duration(0), uint64(0), uint64(0)
	// On a slow machine, each attack needs longer to take effect.
	for began := time.Now(); time.Since(began) < lasts || len(unreached(s)) > 0 && time.Since(began) < lasts+testPatience; answered++ {
		asked := time.Now()
		_ = honest.SetDeadline(asked.Add(testPatience))
		write(t, honest, appendLookup(nil, answered%50))
		checkLookup(t, answered%50, readMessage(t, honest))
		slowest = max(slowest, time.Since(asked))
		if heap := &early; answered%4096 == 0 {
			if time.Since(began) > lasts/2 {
				heap = &later
			}
			*heap = max(*heap, heapNow())
		}
	}
	cancel()
	running.Wait()
	if slowest > 5*time.Second {
		t.Errorf("an answer took %s", slowest)
	}
	if later > early+16<<20 {
		t.Errorf("memory grew from %d to %d bytes", early, later)
	}
	_ = honest.Close()
	eventually(t, "every connection gone", func() bool { return s.Stats().Open == 0 })
	st := s.Stats()
	t.Logf("%d answers, the slowest in %s; %d connections; closed by reason %v", answered, slowest, st.Accepted, st.Closed)
	for _, why := range unreached(s) {
		t.Errorf("no connection ended for %q: the attack did not reach the server", why)
	}
}

// unreached is what the attacks have ended no connection for yet.
func unreached(s *Server) (missing []CloseReason) {
	closed := s.Stats().Closed
	for _, why := range []CloseReason{ClosedReset, ClosedBadCRC, ClosedTooBig, ClosedBadOp, ClosedSlowRequest, ClosedSlowReader, ClosedByPeer} {
		if closed[why] == 0 {
			missing = append(missing, why)
		}
	}
	return missing
}

func heapNow() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// attack makes one sort of attack over and over, from an address that is not
// the honest client's.
func attack(ctx context.Context, addr string, i int) {
	dice := rand.New(rand.NewPCG(uint64(i), 1))
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: time.Second}
	for ctx.Err() == nil {
		nc, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			continue // no port or no place just now
		}
		_ = nc.SetReadDeadline(time.Now().Add(time.Second))
		attacks[i%len(attacks)](nc.(*net.TCPConn), dice)
		if i < len(attacks) {
			time.Sleep(20 * time.Millisecond) // some hold on for a while
		}
		_ = nc.Close()
	}
}
