package standin

import (
	"container/list"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"rutter/log"
	"rutter/varp"
)

// portolan is a Lookup and an EventLog that answers as portolan with its moray back end
// (spec/svp.md section 1.4): VL2, VL3 and the underlay of a node come from three caches
// of portolanCached entries each, the least recently used one out first, for age after
// they were read. A cached answer does not become younger by being asked. The log
// invalidates no cache, NOTFOUND is not cached, and an event stays until it is removed.
//
// The program itself is not run here: it needs node.js packages of its time, and moray.
type portolan struct {
	age time.Duration

	mu       sync.Mutex // protects what follows
	rows     map[netip.Addr]row
	underlay map[string]netip.Addr // by node
	vl2      lru[log.MAC, row]
	vl3      lru[netip.Addr, row]
	cn       lru[string, netip.Addr]
	events   map[netip.Addr][]varp.Record // by underlay address of the node that asks
	lastID   byte
	polled   map[netip.Addr]int // answered LOG_REQ, by underlay address
	old      int                // answers from a cache that were no longer right
	early    []string           // records that were removed while a cache was still old
}

const portolanCached = 100

// row is one of portolan_vnet_mac_ip.
type row struct {
	mac  log.MAC
	node string
}

func newPortolan(age time.Duration) *portolan {
	return &portolan{
		age: age, rows: map[netip.Addr]row{}, underlay: map[string]netip.Addr{}, events: map[netip.Addr][]varp.Record{}, polled: map[netip.Addr]int{},
		vl2: newLRU[log.MAC, row](age), vl3: newLRU[netip.Addr, row](age), cn: newLRU[string, netip.Addr](age),
	}
}

// lru is node's lru-cache with max and maxAge.
type lru[K comparable, V any] struct {
	age   time.Duration
	order *list.List // of *cached, the next to go first
	of    map[K]*list.Element
}

type cached[K comparable, V any] struct {
	key   K
	value V
	read  time.Time
}

func newLRU[K comparable, V any](age time.Duration) lru[K, V] {
	return lru[K, V]{age: age, order: list.New(), of: map[K]*list.Element{}}
}

func (l *lru[K, V]) get(k K) (v V, ok bool) {
	e := l.of[k]
	if e == nil {
		return v, false
	}
	c := e.Value.(*cached[K, V])
	if time.Since(c.read) > l.age {
		l.drop(e)
		return v, false
	}
	l.order.MoveToBack(e)
	return c.value, true
}

func (l *lru[K, V]) drop(e *list.Element) {
	delete(l.of, e.Value.(*cached[K, V]).key)
	l.order.Remove(e)
}

func (l *lru[K, V]) set(k K, v V) {
	if e := l.of[k]; e != nil {
		l.drop(e)
	}
	if l.order.Len() == portolanCached {
		l.drop(l.order.Front())
	}
	l.of[k] = l.order.PushBack(&cached[K, V]{k, v, time.Now()})
}

// at is the underlay of a node, mostly from the cache.
func (p *portolan) at(node string) (varp.Underlay, bool) {
	addr, ok := p.cn.get(node)
	if !ok {
		if addr, ok = p.underlay[node]; !ok {
			return varp.Underlay{}, false
		}
		p.cn.set(node, addr)
	}
	return varp.Underlay{Addr: addr, Port: 4789}, true
}

// byMAC is the last row with a MAC.
func (p *portolan) byMAC(mac log.MAC) (found row, ok bool) {
	for _, r := range p.rows {
		if r.mac == mac {
			found, ok = r, true
		}
	}
	return found, ok
}

func (p *portolan) VL2(on uint32, mac log.MAC) (varp.Underlay, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.vl2.get(mac)
	now, is := p.byMAC(mac)
	if ok && (!is || r != now) {
		p.old++
	}
	if !ok {
		if r, ok = now, is; !ok {
			return varp.Underlay{}, false
		}
		p.vl2.set(mac, r)
	}
	u, ok := p.at(r.node)
	return u, ok && on == vnet
}

func (p *portolan) VL3(on uint32, ip netip.Addr) (log.MAC, varp.Underlay, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.vl3.get(ip)
	now, is := p.rows[ip]
	if ok && (!is || r != now) {
		p.old++
	}
	if !ok {
		if r, ok = now, is; !ok {
			return log.MAC{}, varp.Underlay{}, false
		}
		p.vl3.set(ip, r)
	}
	u, ok := p.at(r.node)
	return r.mac, u, ok && on == vnet
}

func (p *portolan) Events(dst []varp.Record, cn netip.Addr, maxBytes int) ([]varp.Record, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := false
	for _, addr := range p.underlay {
		known = known || addr == cn
	}
	if !known {
		return dst, false
	}
	p.polled[cn]++
	rows := p.events[cn]
	for _, r := range rows[:min(len(rows), maxBytes/32)] {
		if maxBytes -= r.Size(); maxBytes < 0 {
			break
		}
		dst = append(dst, r)
	}
	return dst, true
}

func (p *portolan) Remove(_ netip.Addr, ids []log.UUID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for cn, list := range p.events {
		p.events[cn] = slices.DeleteFunc(list, func(r varp.Record) bool {
			if !slices.Contains(ids, r.ID) {
				return false
			}
			if p.isOld(r) {
				p.early = append(p.early, fmt.Sprint(r.Type, r.IP, r.MAC))
			}
			return true
		})
	}
	return true
}

// isOld reports whether the cache still has what a record says has changed.
func (p *portolan) isOld(r varp.Record) bool {
	if r.Type == varp.RecordVL2 {
		had, ok := p.vl2.get(r.MAC)
		now, is := p.byMAC(r.MAC)
		return ok && (!is || had != now)
	}
	had, ok := p.vl3.get(r.IP)
	return ok && had != p.rows[r.IP]
}

// move is what NAPI writes when the node of a NIC changes, in one batch: its row, and
// two events for each node.
func (p *portolan) move(ip netip.Addr, to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.rows[ip]
	r.node = to
	p.rows[ip] = r
	p.event(varp.Record{Type: varp.RecordVL3, IP: ip}, varp.Record{Type: varp.RecordVL2, MAC: r.mac})
}

// event adds events for each node. The caller holds mu.
func (p *portolan) event(records ...varp.Record) {
	for _, cn := range p.underlay {
		for _, r := range records {
			p.lastID++
			r.ID[15], r.VNet = p.lastID, vnet
			p.events[cn] = append(p.events[cn], r)
		}
	}
}

// waiting is how many events a node has not removed, and removed are those that it
// removed too early.
func (p *portolan) waiting(cn netip.Addr) (open int, early []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.events[cn]), slices.Clone(p.early)
}

// oldAnswers is how many answers were no longer right.
func (p *portolan) oldAnswers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.old
}

// servePortolan serves p, and returns its address.
func servePortolan(t testing.TB, p *portolan) string {
	t.Helper()
	return serveBoth(t, p, p)
}

func serveBoth(t testing.TB, lookup varp.Lookup, events varp.EventLog) string {
	t.Helper()
	server, err := varp.NewServer(varp.Config{Lookup: lookup, Events: events})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	runServer(t, server, listener)
	return listener.Addr().String()
}
