package changefeed

import (
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rutter/log"
)

// resuming is the registration of a listener that wants cursors.
func resuming(cursor string) string {
	return `{"instance":"r","resources":[{"resource":"nic","subResources":["create","delete","state"]}],"cursor":"` + cursor + `"}`
}

// A listener that comes again with a cursor goes on behind it, on another server
// too, and is told to read anew where that cannot be.
func TestResume(t *testing.T) {
	store, all := newMemory(), objects{}
	behind := &follower{memory: store}
	_, address := served(t, Config{Store: store})
	_, second := served(t, Config{Store: behind})
	w, first := register(t, address, V2, resuming(""))
	if first["resumed"] != false || first["cursor"] != store.Head().String() {
		t.Fatalf("the reply is %v", first)
	}
	for n := range byte(5) {
		store.write(t, all.put(nicOf(n+1, "running")))
	}
	var cursor string
	for range 2 {
		cursor = w.text()["cursor"].(string)
	}
	w.conn.Close()
	store.write(t, all.put(nicOf(1, "stopped")))
	again, first := register(t, second, V2, resuming(cursor))
	if first["resumed"] != true || first["seq"] != 2.0 || first["cursor"] != cursor {
		t.Fatalf("the reply is %v, want to go on behind 2", first)
	}
	for seq := 3.0; seq <= 6; seq++ {
		if item := again.text(); item["seq"] != seq {
			t.Fatalf("got %v, want seq %v", item, seq)
		}
	}
	// A server that is behind the cursor waits for itself.
	behind.stop()
	store.write(t, all.put(nicOf(2, "stopped")))
	if _, first := register(t, second, V2, resuming(store.Head().String())); first["resumed"] != true || first["seq"] != 7.0 {
		t.Errorf("behind the cursor: %v", first)
	}
	store.compact(4)
	ahead := store.at(6)
	ahead.Seq = 99
	other := store.at(6)
	other.Cluster[0]++
	for cursor, reason := range map[string]string{cursor: "no longer keeps", ahead.String(): "ahead of the log", other.String(): "another log"} {
		_, first := register(t, second, V2, resuming(cursor))
		if first["resumed"] != false || !strings.Contains(fmt.Sprint(first["reason"]), reason) || first["seq"] != 7.0 || first["bootstrapRoutes"] == nil {
			t.Errorf("cursor %s: %v, want a bootstrap because %q", cursor, first, reason)
		}
	}
}

// A listener that wants cursors and that nothing concerns is told how far it is.
func TestBookmarks(t *testing.T) {
	store, all := newMemory(), objects{}
	_, address := served(t, Config{Store: store, PingEvery: 5 * time.Millisecond, BookmarkEvery: time.Millisecond})
	w, _ := register(t, address, V2, resuming(""))
	store.write(t, all.put(&log.VM{UUID: log.UUID{1}}))
	if mark := w.text(); mark["cursor"] != store.Head().String() || mark["seq"] != 1.0 || mark["changeKind"] != nil {
		t.Errorf("got %v, want a bookmark at 1", mark)
	}
	store.write(t, all.put(nicOf(1, "running")))
	for {
		if item := w.text(); item["changeKind"] != nil {
			if item["seq"] != 2.0 {
				t.Errorf("got %v", item)
			}
			return
		}
	}
}

// A listener that went without a word is noticed, since it answers no ping.
func TestHalfOpen(t *testing.T) {
	s, address := served(t, Config{Store: newMemory(), PingEvery: 5 * time.Millisecond, PongTime: 20 * time.Millisecond})
	register(t, address, V2, nicAndTags)
	await(t, "it is dropped", func() bool { return len(s.hub.registered()) == 0 })
}

// A listener that takes nothing is closed, and others get everything meanwhile.
func TestSlowListener(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	store, all := newMemory(), objects{}
	s, address := served(t, Config{Store: store, WriteTime: 2 * time.Second}) // longer than a machine stands still
	slow := upgraded(t, address, V2)
	if err := slow.conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	slow.send(opText, []byte(strings.Replace(nicAndTags, "i1", "slow", 1)))
	await(t, "it registers", func() bool { return len(s.hub.registered()) == 1 })
	other, _ := register(t, address, V2, nicAndTags)
	gone := func() bool { return len(s.hub.registered()) == 1 }
	// What a socket takes before it blocks is the kernel's to say; the changes are
	// so small that the other's takes each whole.
	for began := time.Now(); !gone(); time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("the slow listener is still there after %d items", store.Head().Seq)
		}
		var change []*log.Event
		for range 100 {
			state := "running"
			if before := all["nic 90:b8:d0:00:00:01"]; before != nil && before.Object.(*log.NIC).State == state {
				state = "stopped"
			}
			change = append(change, all.put(nicOf(1, state)))
		}
		from := store.Head().Seq
		store.write(t, change...)
		for seq := from + 1; seq <= store.Head().Seq; seq++ {
			if item := other.text(); item["seq"] != float64(seq) {
				t.Fatalf("the other listener gets %v, want seq %d", item, seq)
			}
		}
	}
}

// A listener whose place is no longer kept is closed, so that it registers anew.
func TestBehindWhatIsKept(t *testing.T) {
	store, all := newMemory(), objects{}
	for n := range byte(3) {
		store.write(t, all.put(nicOf(n+1, "running")))
	}
	store.compact(2)
	h := newHub(store)
	l := &listener{s: &Service{hub: h}, over: make(chan struct{}), woken: make(chan struct{}, 1), reg: &registration{Instance: "x", wants: []interest{{"nic", []string{"create"}}}}}
	if _, err := h.join(l, nil); err != nil {
		t.Fatal(err)
	}
	l.next = 1
	if err := l.catchUp(); err != nil || !strings.Contains(l.reason, "register anew") {
		t.Errorf("got %v, %q, want an end with a reason", err, l.reason)
	}
}

// When the server stops, listeners are told, and the probe fails.
func TestStop(t *testing.T) {
	s, address, stop := servedUntil(t, Config{Store: newMemory()})
	w, _ := register(t, address, V2, nicAndTags)
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	if code, reason := w.closed(); code != 1000 || !strings.Contains(reason, "stops") {
		t.Errorf("closed with %d %q", code, reason)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := s.serves(); err == nil {
		t.Error("a server that has stopped says that it serves")
	}
}

// A listener with cursors that is cut off anywhere, and comes again to one of two
// servers, either of which may be behind, gets everything once and in order.
func TestRoaming(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		store, all := newMemory(), objects{}
		var addresses []string
		var servers []*follower
		for i := range 2 {
			servers = append(servers, &follower{memory: store})
			_, address := servedFor(t, rt, Config{Store: servers[i]})
			addresses = append(addresses, address)
		}
		wants := drawWants(rt)
		cursor, place := "", log.Seq(0)
		var got []log.Seq
		for visit := range rapid.IntRange(2, 6).Draw(rt, "visits") {
			r := registration{Instance: "r", wants: wants}
			text := printed(&r)
			at := rapid.IntRange(0, 1).Draw(rt, "server")
			if rapid.Bool().Draw(rt, "behind") {
				servers[1-at].stop()
			}
			w, first := register(t, addresses[at], V2, text[:len(text)-1]+`,"cursor":"`+cursor+`"}`)
			if first["resumed"] != (visit > 0) {
				rt.Fatalf("visit %d: %v", visit, first)
			}
			if cursor = first["cursor"].(string); visit == 0 {
				place = log.Seq(first["seq"].(float64))
			}
			for range rapid.IntRange(0, 6).Draw(rt, "changes") {
				store.write(rt, drawEvents(rt, all)...)
			}
			servers[at].goOn()
			want := wanted(rt, store, wants, place)
			for _, seq := range want[:rapid.IntRange(0, len(want)).Draw(rt, "items")] {
				item := w.text()
				if item["seq"] != float64(seq) {
					rt.Fatalf("visit %d: got %v, want seq %d", visit, item, seq)
				}
				cursor, place = item["cursor"].(string), seq
				got = append(got, seq)
			}
			w.conn.Close()
			store.write(rt, drawEvents(rt, all)...) // while there are no listeners
		}
		if all := wanted(rt, store, wants, 0); !slices.Equal(got, all[:len(got)]) {
			rt.Errorf("got %v of %v", got, all)
		}
	})
}

// wanted are the seqs after a place of what matches.
func wanted(t *rapid.T, store *memory, wants []interest, after log.Seq) (seqs []log.Seq) {
	for _, e := range store.entries[after:] {
		it, err := newItem(store.cluster, e, &stamps{last: make(map[string]int64)})
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(wants, func(n interest) bool { return n.wants(it) }) {
			seqs = append(seqs, it.cursor.Seq)
		}
	}
	return seqs
}

// What an idle listener costs, its socket left out: that a thousand are nothing.
func TestIdleListeners(t *testing.T) {
	const listeners, most = 500, 64 << 10 // bytes, the test's own side among them
	s, address := served(t, Config{Store: newMemory()})
	used := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what finalizers freed
		runtime.ReadMemStats(&m)
		return int64(m.HeapInuse + m.StackInuse)
	}
	before := used()
	for i := range listeners {
		register(t, address, V2, strings.Replace(nicAndTags, "i1", fmt.Sprint("idle", i), 1))
	}
	each := (used() - before) / listeners
	t.Logf("%d bytes each", each)
	if each > most || len(s.hub.registered()) != listeners {
		t.Errorf("an idle listener takes %d bytes, want at most %d", each, most)
	}
}
