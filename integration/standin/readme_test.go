package standin

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rutter/cmd/rutter/netlab"
	"rutter/log"
	"rutter/varp"
)

// lab is three nodes on one bridge. The links of the first are those of the README of
// linux-cn-varpd: VXLAN devices with dev and without local. The VM at remoteIP(1) is on
// one of the other two, and moves between them.
type lab struct {
	*world
	nodes [2]varp.Underlay    // of the two others
	homes [2]netlab.Namespace // of the VM there
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if !netlab.Inside() {
		t.Skip(netlab.ErrForbidden.Error())
	}
	w := &world{t: t, dir: t.TempDir(), etc: t.TempDir()}
	l := &lab{world: w}
	w.namespace("bridge")
	w.ip("ip", "bridge", "link", "add", "br0", "type", "bridge")
	w.ip("ip", "bridge", "link", "set", "br0", "up")
	w.cn1, w.zone = l.node("cn1", "10.99.0.1"), w.namespace("zA")
	w.ip("ip", "cn1", "link", "add", "sdcvxl5", "type", "vxlan", "id", "5", "dev", "net0", "dstport", "4789", "nolearning", "proxy", "l2miss", "l3miss")
	l.fabric("cn1", w.zone, log.MAC{2, 0, 1, 0, 0, 1}, "172.16.255.1/16")
	w.ip("ip", "zA", "link", "set", "fabric0", "up")
	for i, name := range []string{"cn2", "cn3"} {
		at := netip.AddrFrom4([4]byte{10, 99, 0, byte(2 + i)})
		l.node(name, at.String())
		l.nodes[i] = varp.Underlay{Addr: at, Port: 4789}
		l.homes[i] = w.namespace("home-" + name)
		w.ip("ip", name, "link", "add", "sdcvxl5", "type", "vxlan", "id", "5", "local", at.String(), "dev", "net0", "dstport", "4789", "nolearning")
		l.fabric(name, l.homes[i], remoteMAC(1), remoteIP(1).String()+"/16")
		w.ip("bridge", name, "fdb", "append", "02:00:01:00:00:01", "dev", "sdcvxl5", "dst", "10.99.0.1")
	}
	l.live(0)
	w.kernel = w.open(w.cn1)
	return l
}

// node makes a node with an underlay address on net0.
func (l *lab) node(name, address string) netlab.Namespace {
	l.t.Helper()
	n := l.namespace(name)
	l.must(netlab.Namespace{Dir: l.dir, Name: "bridge"}.Do(func() error { return netlab.AddVeth("to-"+name, "net0", n, 1500) }))
	l.ip("ip", "bridge", "link", "set", "to-"+name, "master", "br0", "up")
	l.ip("ip", name, "addr", "add", address+"/24", "dev", "net0")
	l.ip("ip", name, "link", "set", "net0", "up")
	return n
}

// fabric makes the link of a VM on a node's VXLAN device.
func (l *lab) fabric(node string, zone netlab.Namespace, mac log.MAC, address string) {
	l.t.Helper()
	l.ip("ip", node, "link", "set", "sdcvxl5", "mtu", "1450", "up")
	l.ip("ip", node, "link", "add", "link", "sdcvxl5", "name", "fabric0", "address", mac.String(), "type", "macvlan", "mode", "bridge")
	l.ip("ip", node, "link", "set", "fabric0", "netns", zone.Path())
	l.ip("ip", zone.Name, "addr", "add", address, "dev", "fabric0")
}

// live makes the VM run on one of the two nodes only.
func (l *lab) live(at int) {
	l.t.Helper()
	l.ip("ip", l.homes[1-at].Name, "link", "set", "fabric0", "down")
	l.ip("ip", l.homes[at].Name, "link", "set", "fabric0", "up")
	l.ip("ip", l.homes[at].Name, "neigh", "replace", "172.16.255.1", "lladdr", "02:00:01:00:00:01", "dev", "fabric0", "nud", "permanent")
}

// portolan has the three nodes and the VM.
func (l *lab) portolan(age time.Duration) *portolan {
	p := newPortolan(age)
	p.underlay = map[string]netip.Addr{"cn1": local, "cn2": l.nodes[0].Addr, "cn3": l.nodes[1].Addr}
	p.rows[remoteIP(1)] = row{remoteMAC(1), "cn2"}
	return p
}

// until waits for a condition.
func (l *lab) until(what string, is func() bool) {
	l.t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			l.t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// TestLinksWithoutLocal: the underlay address of links with dev and without local is
// the device's. Its log is polled, so that a move is known at once; changes of the
// address are followed, and the lack of one is in the status.
func TestLinksWithoutLocal(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	p := l.portolan(time.Nanosecond)
	d, _ := l.run(l.config(servePortolan(t, p)))
	awaitLinks(t, d)
	l.resolved("at first", remoteIP(1), 1, l.nodes[0].Addr)
	p.move(remoteIP(1), "cn3")
	l.resolved("after a move", remoteIP(1), 1, l.nodes[1].Addr)
	l.until("acknowledged", func() bool {
		open, _ := p.waiting(local)
		logs := d.Stats().Logs // the daemon counts what portolan has already removed
		return open == 0 && len(logs) == 1 && logs[0].Acknowledged >= 2
	})
	s := d.Stats()
	if len(s.Logs) != 1 || s.Logs[0].Underlay != local || s.Logs[0].From != "route" || s.Logs[0].LastPoll.IsZero() || s.Logs[0].LastRecord.IsZero() || s.Acknowledged < 2 || len(s.Unpolled) != 0 {
		t.Errorf("status: %+v, want one log, of %s, by route, with 2 records acknowledged", s, local)
	}
	if len(s.Servers) != 1 || s.Servers[0].Address == "" || s.Servers[0].LastReply.IsZero() {
		t.Errorf("status: servers %+v, want one that was heard", s.Servers)
	}

	// An address that the server does not know: polled, with the server's error.
	l.ip("ip", "cn1", "addr", "del", "10.99.0.1/24", "dev", "net0")
	l.ip("ip", "cn1", "addr", "add", "10.99.0.7/24", "dev", "net0")
	unknown := netip.MustParseAddr("10.99.0.7")
	l.until("the other address", func() bool {
		s := d.Stats()
		return len(s.Logs) == 1 && s.Logs[0].Underlay == unknown && strings.Contains(s.Logs[0].LastError, unknown.String())
	})
	p.mu.Lock()
	p.underlay["cn1"] = unknown
	p.mu.Unlock()
	l.until("polled for the other address", func() bool {
		s := d.Stats()
		return len(s.Logs) == 1 && !s.Logs[0].LastPoll.IsZero() && s.Logs[0].LastError == ""
	})
	l.ip("ip", "cn1", "addr", "del", "10.99.0.7/24", "dev", "net0")
	l.until("no address", func() bool {
		s := d.Stats()
		return s.UnpolledLinks == 1 && s.Unpolled[0].Link == "sdcvxl5" && strings.Contains(s.Unpolled[0].Reason, "net0")
	})
	l.ip("ip", "cn1", "addr", "add", "10.99.0.7/24", "dev", "net0")
	l.until("an address again", func() bool { return d.Stats().UnpolledLinks == 0 })
}

// staysUntilAcknowledged checks that an entry is not turned back by old answers.
func (l *lab) staysUntilAcknowledged(p *portolan, at netip.Addr) {
	l.t.Helper()
	l.until("acknowledged", func() bool {
		if s := l.state("zA"); s.forwards[remoteMAC(1)] != at || s.neighs[remoteIP(1)] != remoteMAC(1) {
			l.t.Fatalf("after %d old answers: %v, want %s as before", p.oldAnswers(), s, at)
		}
		open, _ := p.waiting(local)
		return open == 0
	})
}

// TestPortolanCache: portolan's cache has the old answer to VL3 long after it has
// announced a move. The new one, to VL2, is used at once and stays, and the move is
// acknowledged when the cache is new.
func TestPortolanCache(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	p := l.portolan(2 * time.Second)
	cfg := l.config(servePortolan(t, p))
	cfg.CacheTime = p.age
	d, _ := l.run(cfg)
	awaitLinks(t, d)
	l.resolved("at first", remoteIP(1), 1, l.nodes[0].Addr)
	p.mu.Lock()
	p.vl3.set(remoteIP(1), p.rows[remoteIP(1)]) // as if another node had just asked
	p.mu.Unlock()
	p.move(remoteIP(1), "cn3")
	l.resolved("by the question that is not cached", remoteIP(1), 1, l.nodes[1].Addr)
	p.put(remoteIP(1)) // as net-agent does after a move: asked again, with the old answer
	l.staysUntilAcknowledged(p, l.nodes[1].Addr)

	// Both caches are old: the new place is known once one of them is not.
	p.mu.Lock()
	p.vl3.set(remoteIP(1), p.rows[remoteIP(1)])
	p.vl2.set(remoteMAC(1), p.rows[remoteIP(1)])
	p.mu.Unlock()
	p.move(remoteIP(1), "cn2")
	l.resolved("once the cache is new", remoteIP(1), 1, l.nodes[0].Addr)
	l.until("all acknowledged", func() bool { open, _ := p.waiting(local); return open == 0 })
	if _, early := p.waiting(local); len(early) > 0 {
		t.Errorf("acknowledged while the server's answer was old: %v", early)
	}
	if s := l.state("zA"); s.forwards[remoteMAC(1)] != l.nodes[0].Addr {
		t.Errorf("in the end: %v, want %s", s, l.nodes[0].Addr)
	}
}

// TestMovesWithoutCache: a server without a cache is not mistrusted. A NIC that moves
// there and back, or goes and comes back, is where the server says at once, though an
// hour of doubt has begun.
func TestMovesWithoutCache(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	p := l.portolan(time.Nanosecond)
	cfg := l.config(servePortolan(t, p))
	cfg.CacheTime = time.Hour
	d, _ := l.run(cfg)
	awaitLinks(t, d)
	l.resolved("at first", remoteIP(1), 1, l.nodes[0].Addr)
	for i := range 4 {
		p.move(remoteIP(1), []string{"cn3", "cn2"}[i%2])
		l.resolved("after a move", remoteIP(1), 1, l.nodes[1-i%2].Addr)
	}
	for range 2 {
		was := p.remove(remoteIP(1))
		l.gone("a NIC that was deleted", remoteIP(1), 1)
		p.restore(remoteIP(1), was)
		l.resolved("a NIC that came back", remoteIP(1), 1, l.nodes[0].Addr)
	}
	if open, _ := p.waiting(local); open == 0 {
		t.Error("all was acknowledged within the hour")
	}
}

// put writes a NIC as it is: NAPI makes VL3 events of that.
func (p *portolan) put(ip netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.event(varp.Record{Type: varp.RecordVL3, IP: ip})
}

// remove deletes a NIC; of that NAPI makes VL2 events only.
func (p *portolan) remove(ip netip.Addr) row {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.rows[ip]
	delete(p.rows, ip)
	p.event(varp.Record{Type: varp.RecordVL2, MAC: r.mac})
	return r
}

func (p *portolan) restore(ip netip.Addr, r row) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rows[ip] = r
	p.event(varp.Record{Type: varp.RecordVL3, IP: ip})
}

// TestMovesUnderPings: pings continue through moves of the other VM, against portolan
// and against a server without a cache.
func TestMovesUnderPings(t *testing.T) {
	t.Parallel()
	long := os.Getenv("RUTTER_LONG") != ""
	for name, age := range map[string]time.Duration{"portolan": 10 * time.Second, "no cache": time.Nanosecond} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			p := l.portolan(age)
			cfg := l.config(servePortolan(t, p))
			cfg.CacheTime, cfg.PollEvery, cfg.Negative = 0, 0, 0 // the defaults
			d, _ := l.run(cfg)
			awaitLinks(t, d)
			got := l.pings(t)
			l.until("a reply", func() bool { return got.last.Load() > 0 })
			moves := 1
			if long {
				moves = 6
			}
			for i := range moves {
				l.live((i + 1) % 2)
				began := time.Now()
				p.move(remoteIP(1), []string{"cn3", "cn2"}[i%2])
				l.until("a reply from the other node", func() bool { return got.last.Load() > began.UnixNano() })
				lost := time.Since(began)
				t.Logf("move %d: %s without packets", i, lost.Round(time.Millisecond))
				if long && lost > 2*time.Second {
					t.Errorf("move %d: %s without packets, want at most 2 s", i, lost)
				}
				if long { // the next move is not within the cache time of this
					l.until("acknowledged", func() bool { open, _ := p.waiting(local); return open == 0 })
				}
			}
			s := d.Stats()
			t.Logf("%d of %d pings lost; asked %d, %d answers were old", got.sent.Load()-got.received.Load(), got.sent.Load(), s.Asked, p.oldAnswers())
		})
	}
}

// pinging counts the pings of a VM.
type pinging struct {
	sent, received atomic.Int64
	last           atomic.Int64 // unix ns of the sending of the last that was answered
}

// pings pings remoteIP(1) until the end of the test.
func (l *lab) pings(t *testing.T) *pinging {
	var p pinging
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			at := time.Now()
			p.sent.Add(1)
			if _, err := l.zone.Ping(remoteIP(1), 56, 60*time.Millisecond); err == nil {
				p.received.Add(1)
				p.last.Store(at.UnixNano())
			}
			time.Sleep(time.Until(at.Add(60 * time.Millisecond)))
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return &p
}
