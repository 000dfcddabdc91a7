package varp

import (
	"context"
	"errors"
	"iter"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"rutter/log"
)

// slowSite is a site whose table can be read only when the test lets it, and which
// counts its views.
type slowSite struct {
	*site
	gate    chan struct{} // one value for each table
	changed chan struct{}
	views   atomic.Int64
}

func newSlowSite(s *site) *slowSite {
	return &slowSite{site: s, gate: make(chan struct{}, 8), changed: make(chan struct{}, 8)}
}

func (s *slowSite) View(fn func(Rows)) {
	s.views.Add(1)
	s.site.View(func(rows Rows) { fn(slowRows{rows, s.gate}) })
}

type slowRows struct {
	Rows
	gate chan struct{}
}

func (r slowRows) AllNICs(after log.MAC) iter.Seq[*log.NIC] {
	<-r.gate
	return r.Rows.AllNICs(after)
}

// follow runs Mappings over s until the test ends.
func (s *slowSite) follow(t *testing.T) *Mappings {
	m := NewMappings(s, nil)
	m.Follow(func() <-chan struct{} { return s.changed })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return m
}

// A server is not ready until its table is made: at its start, and whenever its state was
// replaced. Its answers are right meanwhile, and no lookup waits for the table.
func TestReadyWhenLoaded(t *testing.T) {
	c, s := rebuiltOf(t, 0, 3)
	source := newSlowSite(s)
	m := source.follow(t)
	notReady := func(when string) {
		t.Helper()
		if err := m.Ready(); !errors.Is(err, errLoading) || !strings.Contains(err.Error(), "mappings") {
			t.Errorf("%s: ready %v, want that the mappings are read", when, err)
		}
		if wrong := sameAsRows(m, source.site, c, 8); wrong != "" {
			t.Errorf("%s: %s", when, wrong)
		}
	}
	ready := func(when string) {
		t.Helper()
		eventually(t, "that it is ready "+when, func() bool { return m.Ready() == nil })
		views := source.views.Load()
		if wrong := sameAsRows(m, source.site, c, 8); wrong != "" {
			t.Errorf("%s: %s", when, wrong)
		}
		if n := source.views.Load(); n != views {
			t.Errorf("%s: lookups read the state %d times, with a table", when, n-views)
		}
	}
	notReady("before the table is made")
	source.gate <- struct{}{}
	ready("after its start")

	// What is applied is noted by the lookup that comes first.
	c.put(&log.NIC{MAC: testMAC(1), BelongsToType: "zone", CNUUID: c.nodes[1], NetworkUUID: c.nets[0].UUID})
	source.catchUp(c, len(c.entries))
	ready("after a move")

	for when, replace := range map[string]func(){
		"of a restored cluster": func() {
			source.mu.Lock()
			defer source.mu.Unlock()
			source.cluster = testUUID(9, 7)
		},
		"of a snapshot": func() {
			c.put(&log.NIC{MAC: testMAC(2), BelongsToType: "zone", CNUUID: c.nodes[1], NetworkUUID: c.nets[0].UUID})
			source.catchUp(c, len(c.entries))
			source.mu.Lock()
			defer source.mu.Unlock()
			source.floor = log.Seq(len(source.entries))
		},
	} {
		replace()
		notReady("with the state " + when) // also before it was told
		source.changed <- struct{}{}
		source.gate <- struct{}{}
		ready("with the state " + when)
	}
}

// Requests that come together while the table is made, or is not kept up, are answered
// from the rows. They must not touch the table.
func TestManyRequestsWhileLoading(t *testing.T) {
	c, s := rebuiltOf(t, 0, 3)
	source := newSlowSite(s)
	m := source.follow(t)
	server, addr := startServer(t, Config{Lookup: m})
	nc := dialTCP(t, addr)
	var requests []byte
	ip := c.nets[0].Subnet.Addr().Next()
	for i := range 4 * warmed {
		requests = VL3Req{VNet: c.nets[0].VNetID, IP: ip}.Append(requests, uint32(i))
	}
	for range 3 {
		write(t, nc, requests)
		for range 4 * warmed {
			if answer := readMessage(t, nc); answer.Op != OpVL3Ack {
				t.Fatalf("answered with %s", answer.Op)
			}
		}
	}
	if n := server.Stats().VL3; n != 3*4*warmed || m.Ready() == nil {
		t.Errorf("%d lookups, ready: %v", n, m.Ready())
	}
	source.gate <- struct{}{}
}

// The other log may have an entry at the same place, which only the chain shows.
func TestNotReadyOnAnotherLog(t *testing.T) {
	_, s := rebuiltOf(t, 0, 2)
	source := &rebuilt{site: s, salt: 1}
	m := NewMappings(source, nil)
	m.VL2(100, testMAC(1))
	if err := m.Ready(); err != nil {
		t.Fatal(err)
	}
	source.salt = 2
	if err := m.Ready(); !errors.Is(err, errLoading) {
		t.Errorf("ready with a table of another log: %v", err)
	}
}

// TestBatchSeesOneMoment: answers of requests that came together are of one moment,
// which is not before they came; those behind a request for the log are not older than
// its answer.
func TestBatchSeesOneMoment(t *testing.T) {
	c, s := rebuiltOf(t, 0, 0)
	m := NewMappings(s, nil)
	at := func(node int) netip.Addr {
		u, _ := s.rows.underlayOf(c.nodes[node])
		return u.Addr
	}
	move := func(node int) {
		c.put(&log.NIC{MAC: testMAC(1), BelongsToType: "zone", CNUUID: c.nodes[node], NetworkUUID: c.nets[0].UUID})
		s.catchUp(c, len(c.entries))
	}
	events := &movingEvents{}
	conn := loopConn(t, Config{Lookup: m, Events: events})
	ask := func() netip.Addr {
		t.Helper()
		request := VL2Req{MAC: testMAC(1), VNet: 100}.Append(nil, 1)
		msg, _, _ := Split(request, MaxBody)
		out, err := conn.answer(nil, msg)
		if err != nil {
			t.Fatal(err)
		}
		answer, _, _ := Split(out, MaxBody)
		ack, err := ParseVL2Ack(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return ack.Underlay.Addr
	}
	if got := ask(); got != at(0) {
		t.Errorf("at %s, want %s", got, at(0))
	}
	move(1)
	if got := ask(); got != at(0) {
		t.Errorf("within the batch: at %s, want %s as before", got, at(0))
	}
	conn.endBatch()
	if got := ask(); got != at(1) {
		t.Errorf("in the next batch: at %s, want %s", got, at(1))
	}
	events.move = func() { move(0) }
	request, _, _ := Split(LogReq{CN: at(1), Count: 1024}.Append(nil, 2), MaxBody)
	if _, err := conn.answer(nil, request); err != nil {
		t.Fatal(err)
	}
	if got := ask(); got != at(0) {
		t.Errorf("after the log told of the move: at %s, want %s", got, at(0))
	}
	conn.endBatch()
}

// movingEvents is a log that tells of a move that happens just then.
type movingEvents struct{ move func() }

func (e *movingEvents) Events(dst []Record, _ netip.Addr, _ int) ([]Record, bool) {
	e.move()
	return dst, true
}

func (e *movingEvents) Remove(netip.Addr, []log.UUID) bool { return true }
