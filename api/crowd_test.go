package api_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"rutter/api"
	"rutter/api/client"
	"rutter/log"
	"rutter/log/feed"
)

// crowdReader follows the feed and notes when it saw each seq.
type crowdReader struct {
	feed.Handler
	marked atomic.Uint64
	late   []time.Duration
	wrote  *sync.Map // seq → when it was written
}

func (r *crowdReader) Welcome(*feed.Welcome) error           { return nil }
func (r *crowdReader) Reset(*feed.Reset) error               { return nil }
func (r *crowdReader) Object(*feed.Object) error             { return nil }
func (r *crowdReader) ScopeBegin(*feed.ScopeBegin) error     { return nil }
func (r *crowdReader) ScopeEnd(*feed.ScopeEnd) error         { return nil }
func (r *crowdReader) ScopeDropped(*feed.ScopeDropped) error { return nil }

func (r *crowdReader) Entry(e *feed.Entry) error {
	if at, ok := r.wrote.Load(e.Seq); ok {
		r.late = append(r.late, time.Since(at.(time.Time)))
	}
	return nil
}

func (r *crowdReader) Bookmark(b *feed.Bookmark) error {
	r.marked.Store(uint64(b.Seq))
	return nil
}

func crowdCN(i int) log.UUID {
	return log.UUID{0: 0xc0, 6: 0x40, 8: 0x80, 14: byte(i >> 8), 15: byte(i)}
}

// Of many readers some stop reading. The others are told everything as soon as
// before, and the server keeps no more than a buffer for each that stopped.
// With RUTTER_LONG=1 the test takes a minute, with 1,000 readers.
func TestStoppedReadersHurtNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	readers, stopped, lasts := 300, 30, 3*time.Second
	if os.Getenv("RUTTER_LONG") != "" {
		readers, stopped, lasts = 1000, 100, time.Minute
	}
	store := api.NewMemory()
	server := runOn(t, store, func(l net.Listener) net.Listener { return smallBuffers{l} })
	c := newClient(t, server.url)
	blocked := 0 // streams that waited for their sockets, at most
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var tags []log.Op // a change of all of them fills what the sockets of the stopped ones take
	for i := range 40 {
		name := fmt.Sprintf("crowd%d", i)
		if _, err := c.Create(ctx, "/nic_tags", fmt.Appendf(nil, `{"name":%q}`, name)); err != nil {
			t.Fatal(err)
		}
		tags = append(tags, log.Op{Action: log.Update, Kind: log.KindNICTag, ID: name, Set: []string{"mtu"}, Object: &log.NICTag{Name: name}})
	}
	var wrote sync.Map
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	var live []*crowdReader
	for i := range readers {
		conn, err := c.Feed(ctx, server.url)
		if err != nil {
			t.Fatal(err)
		}
		if i < stopped {
			defer stopReading(t, conn, i)()
			continue
		}
		r := &crowdReader{wrote: &wrote}
		live = append(live, r)
		following.Go(func() {
			_ = feed.NewConn(conn).Follow(ctx, &feed.Hello{CN: crowdCN(i), Incarnation: 1, Session: 1}, r)
		})
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	last := log.Seq(0)
	// A slow machine needs longer until the sockets of those that stopped are full.
	end, latest := time.Now().Add(lasts), time.Now().Add(lasts+30*time.Second)
	for ; time.Now().Before(end) || blocked < stopped && time.Now().Before(latest); time.Sleep(30 * time.Millisecond) { // the rate of the load
		next := store.Head().Seq + 1
		for i := range tags {
			wrote.Store(next+log.Seq(i), time.Now())
			tags[i].Object = &log.NICTag{Name: tags[i].ID, MTU: 1500 + uint32(next%5000)}
		}
		result, err := c.Submit(ctx, &log.Change{ID: client.NewChangeID(), Ops: tags})
		if err != nil {
			t.Fatal(err)
		}
		last = result.Last
		blocked = max(blocked, server.metric(t, "rutter_feed_blocked"))
	}
	for _, r := range live {
		for deadline := time.Now().Add(2 * time.Minute); r.marked.Load() < uint64(last); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("a reader is at %d, want %d", r.marked.Load(), last)
			}
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	cancel()
	following.Wait()
	var all []time.Duration
	grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	for _, r := range live {
		all = append(all, r.late...)
		grown -= int64(cap(r.late)) * int64(unsafe.Sizeof(r.late[0])) // the test's own
	}
	slices.Sort(all)
	p99 := all[len(all)*99/100]
	t.Logf("%d readers, %d stopped: %d deliveries, p50 %v, p99 %v; %d were held up at once; heap grew by %d KB", readers, stopped, len(all), all[len(all)/2], p99, blocked, grown>>10)
	if want := len(live) * (int(last) - len(tags)) * 9 / 10; len(all) < want {
		t.Errorf("%d deliveries, want %d at least", len(all), want)
	}
	if blocked < stopped {
		t.Errorf("%d streams waited for their sockets, want the %d that stopped", blocked, stopped)
	}
	if p99 > 30*time.Second {
		t.Errorf("p99 of the readers that read is %v", p99)
	}
	if most := int64(64<<20) + int64(stopped)*(256<<10); grown > most {
		t.Errorf("the heap grew by %d bytes, want %d at most", grown, most)
	}
}

// smallBuffers limits what each connection holds unread to little.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return conn, conn.(*net.TCPConn).SetWriteBuffer(16 << 10)
}

// metric reads a value of GET /metrics.
func (r *running) metric(t *testing.T, name string) int {
	t.Helper()
	response, err := http.Get(r.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			value, err := strconv.ParseFloat(rest, 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(value)
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// stopReading says hello, pings so that it counts as there, and never reads.
func stopReading(t *testing.T, conn net.Conn, i int) (end func()) {
	t.Helper()
	if small, ok := conn.(interface{ SetReadBuffer(int) error }); ok {
		if err := small.SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
	}
	hello, err := feed.Append(nil, &feed.Hello{CN: crowdCN(i), Incarnation: 1, Session: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(hello); err != nil {
		t.Fatal(err)
	}
	ping, err := feed.Append(nil, new(feed.Ping))
	if err != nil {
		t.Fatal(err)
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(feed.PingEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				if _, err := conn.Write(ping); err != nil {
					return // the server gave it up
				}
			}
		}
	}()
	return func() { close(stop); conn.Close(); <-ended }
}
