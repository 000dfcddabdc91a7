package varp

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"rutter/log"
	"rutter/varp/internal/slots"
)

// vxlanPort is the UDP port of VXLAN (IANA; RFC 7348, section 5).
const vxlanPort = 4789

// rebuildBehind is the number of entries from which Mappings is rebuilt from the rows
// instead of catching up. A rebuild takes at most as long as this many entries for each
// 100,000 NICs.
const rebuildBehind = 65536

// Mappings is a Lookup for a server with many mappings: a copy of what answers need, 90
// bytes for each NIC. Its layout gives the same cost of an answer with 1,000 and with
// 1,000,000 mappings, and lookups do not wait for the lock of the state.
//
// It follows the log itself: a lookup first notes what was applied since the last one,
// so its answer is never older than what the node has applied. The first lookup, and
// one after a gap in the log, rebuilds it from the rows, which takes 1 s for a million
// NICs; applying the log continues meanwhile. If the log cannot be read, it answers
// from the rows.
//
// It is not for an agent, whose state changes by more than entries.
//
// Its methods may be called from any goroutine.
type Mappings struct {
	source Source       // immutable
	logger *slog.Logger // immutable

	// at is the position up to which the log was followed, nil before the first time.
	// It is changed only under mu.
	at     atomic.Pointer[position]
	broken atomic.Bool // the log could not be read; it stays so

	mu    sync.RWMutex // protects what follows
	nets  map[log.UUID]uint32
	nodes *nodeTable
	macs  *slots.Table[macKey, uint32] // the node's number
	ips   *slots.Table[ipKey, hostRow]
}

type position struct {
	cluster log.UUID
	seq     log.Seq
	chain   log.ChainPrefix // at seq
}

// reaches reports whether p is at a head.
func (p *position) reaches(head log.Cursor) bool {
	return *p == position{head.Cluster, head.Seq, head.Chain}
}

type hostRow struct {
	mac  log.MAC
	node uint32
}

// NewMappings returns a Lookup over source, which it reads at the first request. logger
// gets the error if the log cannot be read; nil: none.
func NewMappings(source Source, logger *slog.Logger) *Mappings {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Mappings{source: source, logger: logger}
}

// VL2 implements Lookup.
func (m *Mappings) VL2(vnet uint32, mac log.MAC) (Underlay, bool) {
	if !m.fresh() {
		return m.rowsVL2(vnet, mac)
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	node, ok := m.macs.Get(macKey{vnet + 1, mac})
	if !ok {
		return Underlay{}, false
	}
	return m.nodes.underlay(node)
}

// VL3 implements Lookup.
func (m *Mappings) VL3(vnet uint32, ip netip.Addr) (log.MAC, Underlay, bool) {
	if !m.fresh() {
		return m.rowsVL3(vnet, ip)
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	host, ok := m.ips.Get(ipKey{vnet + 1, ip.As16()})
	if !ok {
		return log.MAC{}, Underlay{}, false
	}
	at, ok := m.nodes.underlay(host.node)
	if !ok {
		return log.MAC{}, Underlay{}, false
	}
	return host.mac, at, true
}

// rowsVL2 and rowsVL3 ask the state. They are separate because the results of their
// closures are allocated, which the other lookups must avoid.
func (m *Mappings) rowsVL2(vnet uint32, mac log.MAC) (at Underlay, ok bool) {
	m.source.View(func(rows Rows) { at, ok = rows.VL2(vnet, mac) })
	return at, ok
}

func (m *Mappings) rowsVL3(vnet uint32, ip netip.Addr) (mac log.MAC, at Underlay, ok bool) {
	m.source.View(func(rows Rows) { mac, at, ok = rows.VL3(vnet, ip) })
	return mac, at, ok
}

// fresh brings m up to what is applied; false if it cannot.
func (m *Mappings) fresh() bool {
	// The head is read second: a higher position than that is of a log that this node
	// had before it was rebuilt.
	at := m.at.Load()
	if head := m.source.Head(); at != nil && at.reaches(head) {
		return true
	}
	return !m.broken.Load() && m.catchUp()
}

func (m *Mappings) catchUp() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.at.Load()
	for head := m.source.Head(); at == nil || !at.reaches(head); head = m.source.Head() {
		next, err := m.step(at, head)
		if err != nil {
			m.broken.Store(true)
			m.at.Store(nil)
			m.logger.Error("SVP: the log cannot be read: lookups use the state itself", "error", err)
			return false
		}
		at = next
		m.at.Store(at)
	}
	return true
}

// step advances from at towards head, and returns how far it came.
func (m *Mappings) step(at *position, head log.Cursor) (*position, error) {
	if at == nil || at.cluster != head.Cluster || at.seq > head.Seq || at.seq+rebuildBehind < head.Seq {
		return m.rebuild(head), nil
	}
	entries, err := m.source.Entries(at.seq, entryBatch)
	if err == nil {
		err = hasEntry(m.source, at.seq, at.chain)
	}
	if err != nil {
		return m.rebuild(head), nil // compacted, or another log
	}
	next := &position{at.cluster, head.Seq, head.Chain}
	for _, entry := range entries {
		e, err := entry.Event()
		if err == nil {
			err = m.apply(e)
		}
		if err != nil {
			return nil, fmt.Errorf("seq %d: %w", entry.Seq, err)
		}
		next.seq, next.chain = entry.Seq, entry.Hash.Prefix()
	}
	return next, nil
}

// rebuild makes everything from the rows, in batches, so that applying the log does not
// wait for all of it. The rows are of head or later, of different moments. Entries
// after head are then noted, or noted again, which apply allows.
func (m *Mappings) rebuild(head log.Cursor) *position {
	mix := newMixer()
	m.nets, m.nodes = make(map[log.UUID]uint32), newNodeTable()
	m.macs, m.ips = slots.New[macKey, uint32](mix.mac), slots.New[ipKey, hostRow](mix.ip)
	m.source.View(func(rows Rows) {
		for network, vnet := range rows.Networks() {
			m.nets[network] = vnet
		}
	})
	for last, more := (log.MAC{}), true; more; {
		m.source.View(func(rows Rows) { last, more = m.putSome(rows, last) })
	}
	return &position{head.Cluster, head.Seq, head.Chain}
}

// rebuildBatch is how many rows are read at a time: the state is locked for a few
// milliseconds.
const rebuildBatch = 8192

// putSome puts the NICs after a MAC, and returns the last MAC and whether there may be
// more.
func (m *Mappings) putSome(rows Rows, after log.MAC) (last log.MAC, more bool) {
	n := 0
	for nic := range rows.AllNICs(after) {
		if n == rebuildBatch {
			return last, true
		}
		m.put(locationOf(nic))
		last = nic.MAC
		n++
	}
	return last, false
}

// apply notes one event. The event may have been noted before, with later ones; noting
// those again corrects what this one changes.
func (m *Mappings) apply(e *log.Event) error {
	switch o := e.Object.(type) {
	case *log.Network:
		if delete(m.nets, o.UUID); o.Fabric && e.Action != log.Delete {
			m.nets[o.UUID] = o.VNetID
		}
	case *log.NIC:
		if e.Action == log.Update {
			before, err := log.Revert(o, e.Changed)
			if err != nil {
				return err
			}
			m.take(locationOf(before.(*log.NIC)))
		}
		if e.Action == log.Delete {
			m.take(locationOf(o))
		} else {
			m.put(locationOf(o))
		}
	}
	return nil
}

func (m *Mappings) put(p nicMapping) {
	node := m.nodes.number(p.node)
	if p.underlay && p.ip.IsValid() {
		m.nodes.put(node, p.mac, Underlay{Addr: p.ip, Port: p.port})
	}
	vnet, ok := m.nets[p.network]
	if !ok {
		return
	}
	m.macs.Put(macKey{vnet + 1, p.mac}, node)
	if p.ip.IsValid() {
		m.ips.Put(ipKey{vnet + 1, p.ip.As16()}, hostRow{p.mac, node})
	}
}

func (m *Mappings) take(p nicMapping) {
	if p.underlay {
		m.nodes.remove(m.nodes.number(p.node), p.mac)
	}
	vnet, ok := m.nets[p.network]
	if !ok {
		return
	}
	m.macs.Remove(macKey{vnet + 1, p.mac})
	if key := (ipKey{vnet + 1, p.ip.As16()}); p.ip.IsValid() {
		if host, ok := m.ips.Get(key); ok && host.mac == p.mac {
			m.ips.Remove(key)
		}
	}
}

// nodeTable numbers the compute nodes and has the address where each receives VXLAN
// packets. A node keeps its number until the next rebuild, because there are few.
type nodeTable struct {
	numbers map[log.UUID]uint32
	at      []Underlay        // in use, of the lowest MAC; zero if there is none
	nics    [][]underlayOfMAC // by rising MAC
}

type underlayOfMAC struct {
	mac log.MAC
	at  Underlay
}

func newNodeTable() *nodeTable { return &nodeTable{numbers: make(map[log.UUID]uint32)} }

func (t *nodeTable) number(node log.UUID) uint32 {
	n, ok := t.numbers[node]
	if !ok {
		n = uint32(len(t.at))
		t.numbers[node] = n
		t.at, t.nics = append(t.at, Underlay{}), append(t.nics, nil)
	}
	return n
}

func (t *nodeTable) underlay(n uint32) (Underlay, bool) { return t.at[n], t.at[n].Addr.IsValid() }

func (t *nodeTable) find(n uint32, mac log.MAC) (int, bool) {
	return slices.BinarySearchFunc(t.nics[n], mac, func(u underlayOfMAC, mac log.MAC) int { return u.mac.Compare(mac) })
}

func (t *nodeTable) put(n uint32, mac log.MAC, at Underlay) {
	t.remove(n, mac)
	i, _ := t.find(n, mac)
	t.nics[n] = slices.Insert(t.nics[n], i, underlayOfMAC{mac, at})
	t.settle(n)
}

func (t *nodeTable) remove(n uint32, mac log.MAC) {
	if i, found := t.find(n, mac); found {
		t.nics[n] = slices.Delete(t.nics[n], i, i+1)
		t.settle(n)
	}
}

func (t *nodeTable) settle(n uint32) {
	t.at[n] = Underlay{}
	if nics := t.nics[n]; len(nics) > 0 {
		t.at[n] = nics[0].at
	}
}

// macKey and ipKey are the keys of Mappings. vnet is one more than the vnet's
// number, so that no key is zero.
type (
	macKey struct {
		vnet uint32
		mac  log.MAC
	}
	ipKey struct {
		vnet uint32
		ip   [16]byte
	}
)

// mixer hashes keys with a random seed, because tenants choose addresses and must not
// be able to choose colliding ones.
type mixer struct{ a, b uint64 }

func newMixer() mixer { return mixer{rand.Uint64() | 1, rand.Uint64() | 1} }

func (m mixer) mix(x, y uint64) uint64 {
	hi, lo := bits.Mul64(x^m.a, y^m.b)
	return hi ^ lo
}

func (m mixer) mac(k macKey) uint64 {
	return m.mix(uint64(k.vnet)<<16|uint64(binary.BigEndian.Uint16(k.mac[:])), uint64(binary.BigEndian.Uint32(k.mac[2:])))
}

func (m mixer) ip(k ipKey) uint64 {
	return m.mix(m.mix(binary.BigEndian.Uint64(k.ip[:]), uint64(k.vnet)), binary.BigEndian.Uint64(k.ip[8:]))
}
