package standin

import (
	"net/netip"
	"testing"
	"time"

	"rutter/log"
	"rutter/varp"
)

// TestPing: the first packet of a VM is answered, by IPv4 and IPv6, untagged and
// tagged.
func TestPing(t *testing.T) {
	for name, vlan := range map[string]uint16{"untagged": 0, "tagged": 7} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, vlan)
			at, _ := serve(t, newDirectory(1), "127.0.0.1:0")
			d, _ := w.run(w.config(at))
			awaitLinks(t, d)
			for _, to := range []netip.Addr{remoteIP(1), remoteIP6(1)} {
				if rtt, err := w.zone.Ping(to, 56, patience); err != nil {
					t.Errorf("first packet: %v", err)
				} else {
					t.Logf("first packet to %s and back: %s", to, rtt)
				}
			}
		})
	}
}

// awaitLinks returns when a daemon has looked at the links.
func awaitLinks(t testing.TB, d interface{ Ready() <-chan struct{} }) {
	t.Helper()
	select {
	case <-d.Ready():
	case <-time.After(patience):
		t.Fatal("the daemon is not ready")
	}
}

// TestShootdowns: what the log names is put right or removed at once, and
// acknowledged; what it does not name is found by asking again.
func TestShootdowns(t *testing.T) {
	w := newWorld(t, 0)
	dir := newDirectory(3)
	at, _ := serve(t, dir, "127.0.0.1:0")
	cfg := w.config(at)
	d, _ := w.run(cfg)
	for n := 1; n <= 3; n++ {
		w.resolved("at first", remoteIP(n), n, remote.Addr)
	}
	moved := varp.Underlay{Addr: netip.MustParseAddr("10.99.0.3"), Port: 4789}

	dir.change(func() { dir.macs[remoteMAC(1)] = moved }, varp.Record{Type: varp.RecordVL2, MAC: remoteMAC(1)})
	w.eventually("a NIC that moved", func(s state) bool { return s.forwards[remoteMAC(1)] == moved.Addr })

	dir.change(func() { dir.ips[remoteIP(2)] = remoteMAC(3) }, varp.Record{Type: varp.RecordVL3, IP: remoteIP(2)})
	w.eventually("an address with another MAC", func(s state) bool {
		_, old := s.forwards[remoteMAC(2)]
		return s.neighs[remoteIP(2)] == remoteMAC(3) && !old
	})

	dir.change(func() { delete(dir.macs, remoteMAC(3)) },
		varp.Record{Type: varp.RecordVL2, MAC: remoteMAC(3)}, varp.Record{Type: varp.RecordVL3, IP: remoteIP(3)}, varp.Record{Type: varp.RecordVL3, IP: remoteIP(2)})
	w.gone("a NIC that was deleted", remoteIP(3), 3)
	w.gone("and its other address", remoteIP(2), 3)

	w.eventually("all acknowledged", func(state) bool {
		dir.mu.Lock()
		defer dir.mu.Unlock()
		return len(dir.records) == 0
	})
	if got := d.Stats().Shootdowns; got < 5 {
		t.Errorf("%d shootdowns, want 5 or more", got)
	}

	// A NOTFOUND is forgotten as soon as the log names the address.
	w.must(send(w.zone, remoteIP(3)))
	dir.change(func() { dir.macs[remoteMAC(3)] = remote }, varp.Record{Type: varp.RecordVL3, IP: remoteIP(3)})
	w.resolved("a NIC that came back", remoteIP(3), 3, remote.Addr)
}

// TestRefresh: without a shootdown log an entry is wrong for RefreshEvery.
func TestRefresh(t *testing.T) {
	w := newWorld(t, 0)
	dir := newDirectory(2)
	at, _ := serve(t, dir, "127.0.0.1:0")
	cfg := w.config(at)
	cfg.PollEvery, cfg.RefreshEvery = -1, 200*time.Millisecond
	w.run(cfg)
	w.resolved("at first", remoteIP(1), 1, remote.Addr)
	moved := varp.Underlay{Addr: netip.MustParseAddr("10.99.0.3"), Port: 4789}
	dir.change(func() { dir.macs[remoteMAC(1)] = moved })
	w.eventually("a NIC that moved", func(s state) bool { return s.forwards[remoteMAC(1)] == moved.Addr })
	dir.change(func() { delete(dir.macs, remoteMAC(1)) })
	w.gone("a NIC that was deleted", remoteIP(1), 1)
}

// TestTakesOver: what an earlier run left, or linux-cn-varpd, is asked for and
// put right; where broadcasts go is left alone.
func TestTakesOver(t *testing.T) {
	w := newWorld(t, 0)
	dir := newDirectory(2)
	at, _ := serve(t, dir, "127.0.0.1:0")
	_, stop := w.run(w.config(at))
	w.resolved("at first", remoteIP(1), 1, remote.Addr)
	w.resolved("at first", remoteIP(2), 2, remote.Addr)
	stop()
	if s := w.state("zA"); len(s.neighs) != 2 || len(s.forwards) != 2 {
		t.Fatalf("after the daemon's end: %v, want what was there", s)
	}
	dir.change(func() { delete(dir.macs, remoteMAC(1)) })
	all := log.MAC{}
	w.ip("bridge", "cn1", "fdb", "append", all.String(), "dev", "sdcvxl5", "dst", "10.99.0.2")
	w.run(w.config(at))
	w.gone("what was deleted meanwhile", remoteIP(1), 1)
	w.eventually("the rest", func(s state) bool { return s.neighs[remoteIP(2)] == remoteMAC(2) })
	if s := w.state(); s.forwards[all] != remote.Addr {
		t.Errorf("where broadcasts go: %v, want %v", s.forwards[all], remote.Addr)
	}
}

// TestBounds: a miss is asked for once, NOTFOUND is believed for a while, and of
// more entries than may be the oldest give way.
func TestBounds(t *testing.T) {
	w := newWorld(t, 0)
	dir := newDirectory(50)
	at, _ := serve(t, dir, "127.0.0.1:0")
	cfg := w.config(at)
	cfg.MaxEntries, cfg.Negative = 20, time.Hour
	d, _ := w.run(cfg)
	awaitLinks(t, d)
	nobody := remoteIP(999)
	for range 20 {
		w.must(send(w.zone, nobody))
		time.Sleep(100 * time.Millisecond) // the kernel asks once a second
	}
	if got := dir.count(); got != 1 {
		t.Errorf("%d questions for an address that nobody has, want 1", got)
	}
	for n := 1; n <= 50; n++ {
		w.must(send(w.zone, remoteIP(n)))
	}
	w.resolved("one of many", remoteIP(50), 50, remote.Addr)
	w.eventually("no more than may be", func(s state) bool { return len(s.neighs) <= 20 && len(s.forwards) <= 20 })
}
