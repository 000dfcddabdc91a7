package varp

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rutter/log"
)

// lines is a logger's output.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestAge: a node that is cut off for longer than the bound logs it once, and once more
// when it has caught up.
func TestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := time.Now()
		var said lines
		var mu sync.Mutex
		s, err := NewServer(Config{
			Lookup: vectorFixture(), Logger: slog.New(slog.NewTextHandler(&said, nil)),
			Age: func() time.Duration { mu.Lock(); defer mu.Unlock(); return time.Since(heard) },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.watchAge(ctx) }()
		check := func(stale bool, warnings, infos int) {
			t.Helper()
			synctest.Wait()
			said.mu.Lock()
			defer said.mu.Unlock()
			if st := s.Stats(); st.Stale != stale || st.Age != time.Since(heard) {
				t.Errorf("after %s: age %s, stale %v, want %v", time.Since(heard), st.Age, st.Stale, stale)
			}
			text := said.text.String()
			if w, i := strings.Count(text, "level=WARN"), strings.Count(text, "level=INFO"); w != warnings || i != infos {
				t.Errorf("after %s: said %q, want %d warnings and %d all-clears", time.Since(heard), text, warnings, infos)
			}
		}
		time.Sleep(59 * time.Second)
		check(false, 0, 0)
		time.Sleep(15 * time.Second)
		check(true, 1, 0)
		time.Sleep(5 * time.Hour)
		check(true, 1, 0)
		mu.Lock()
		heard = time.Now()
		mu.Unlock()
		time.Sleep(11 * time.Second)
		check(false, 1, 1)
		cancel()
		<-done
	})
}

// TestFreshAfterShootdown takes portolan's steps to a stale answer (spec/svp.md
// section 0.3): look a NIC up, so that every cache has it; move it; fetch the
// shootdown, acknowledge it, and look it up again at once.
func TestFreshAfterShootdown(t *testing.T) {
	c := newCloud(t, 3, 2)
	for i := range 2 {
		c.put(&log.NIC{MAC: testMAC(i), BelongsToType: "zone", CNUUID: c.nodes[i], NetworkUUID: c.nets[0].UUID, IP: netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)})})
	}
	site := newSite(c, ShootdownConfig{})
	_, addr := startServer(t, Config{Lookup: site, Events: site.events})
	nc := dialTCP(t, addr)
	id := uint32(0)
	ask := func(request func(id uint32) []byte) Message {
		t.Helper()
		id++
		write(t, nc, request(id))
		return readMessage(t, nc)
	}
	fetch := func() []Record {
		t.Helper()
		m := ask(LogReq{Count: 1024, CN: underlayAddr(0)}.frame)
		_, records, err := ParseLogAck(m.Body, nil)
		if err != nil {
			t.Fatal(err)
		}
		ids := make([]log.UUID, len(records))
		for i, r := range records {
			ids[i] = r.ID
		}
		ask(func(id uint32) []byte { return AppendLogRM(nil, id, ids) })
		return records
	}
	mac, ip := testMAC(1), netip.MustParseAddr("10.0.0.2")
	lookUp := func() (VL2Ack, VL3Ack) {
		t.Helper()
		vl2, err := ParseVL2Ack(ask(func(id uint32) []byte { return VL2Req{MAC: mac, VNet: 100}.Append(nil, id) }).Body)
		if err != nil {
			t.Fatal(err)
		}
		vl3, err := ParseVL3Ack(ask(func(id uint32) []byte { return VL3Req{IP: ip, Type: L3TypeIPv6, VNet: 100}.Append(nil, id) }).Body)
		if err != nil {
			t.Fatal(err)
		}
		return vl2, vl3
	}
	fetch()
	for round := range 20 {
		node := 1 + round%2
		lookUp()
		n := log.Clone(c.nic(mac)).(*log.NIC)
		n.CNUUID = c.nodes[node]
		c.put(n)
		site.catchUp(c, len(c.entries))
		records := fetch()
		vl2, vl3 := lookUp()
		if round > 0 && len(records) != 2 {
			t.Errorf("round %d: %d records, want 2", round, len(records))
		}
		if want := underlayAddr(node); vl2.Underlay.Addr != want || vl3.Underlay.Addr != want {
			t.Errorf("round %d: after the shootdown VL2 says %s, VL3 %s; it is at %s", round, vl2.Underlay.Addr, vl3.Underlay.Addr, want)
		}
		if again := fetch(); slices.ContainsFunc(again, func(r Record) bool { return r.MAC == mac }) {
			t.Errorf("round %d: an acknowledged record came again", round)
		}
	}
}

// frame is Append as a function of the id alone.
func (r LogReq) frame(id uint32) []byte { return r.Append(nil, id) }
