package varp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"rutter/log"
	"rutter/varp/internal/slots"
)

// rebuildBehind is the number of entries from which Mappings is rebuilt from the rows
// instead of catching up. A rebuild takes at most as long as this many entries for each
// 100,000 NICs.
const rebuildBehind = 65536

// Mappings is a Lookup for a server with many mappings: a copy of what answers need, 90
// bytes for each NIC. Its layout gives the same cost of an answer with 1,000 and with
// 1,000,000 mappings, and lookups do not wait for the lock of the state.
//
// It follows the log itself: a lookup first notes what was applied since the last one,
// so its answer is never older than what the node has applied. When it was never made,
// or after a gap in the log, it must be made from the rows, which takes 1 s for a
// million NICs; applying the log continues meanwhile. With Follow, Run does that, Ready
// says why a server must wait for it, and lookups meanwhile answer from the rows;
// without, the first lookup makes it. If the log cannot be read, it answers from the
// rows.
//
// It is not for an agent, whose state changes by more than entries.
//
// Its methods may be called from any goroutine.
type Mappings struct {
	source  Source                 // immutable
	logger  *slog.Logger           // immutable
	changed func() <-chan struct{} // immutable after Follow; nil: no Run

	// at is the position up to which the log was followed, nil if there is no table. It
	// is changed only under turn and mu.
	at     atomic.Pointer[position]
	broken atomic.Bool   // the log could not be read; it stays so
	loaded atomic.Int64  // NICs read by the rebuild that runs
	wanted chan struct{} // to Run: a lookup found that the table must be made

	turn sync.Mutex   // of the one that follows the log; taken before mu
	mu   sync.RWMutex // protects what follows
	*mappingTable
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

// NewMappings returns a Lookup over source, which it reads at the first request. logger
// gets the error if the log cannot be read; nil: none.
func NewMappings(source Source, logger *slog.Logger) *Mappings {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Mappings{source: source, logger: logger, wanted: make(chan struct{}, 1)}
}

// VL2 implements Lookup.
func (m *Mappings) VL2(vnet uint32, mac log.MAC) (Underlay, bool) {
	if !m.acquire() {
		return m.rowsVL2(vnet, mac)
	}
	defer m.release()
	return m.vl2(vnet, mac)
}

// VL3 implements Lookup.
func (m *Mappings) VL3(vnet uint32, ip netip.Addr) (log.MAC, Underlay, bool) {
	if !m.acquire() {
		return m.rowsVL3(vnet, ip)
	}
	defer m.release()
	return m.vl3(vnet, ip)
}

// acquire brings the table up to what is applied, and keeps it as it is until release;
// false if it cannot: the rows answer then.
func (m *Mappings) acquire() bool {
	if !m.fresh() {
		return false
	}
	m.mu.RLock()
	if m.mappingTable == nil { // another log was found just now
		m.mu.RUnlock()
		return false
	}
	return true
}

func (m *Mappings) release() { m.mu.RUnlock() }

// Begin implements BatchLookup.
func (m *Mappings) Begin() (Lookup, bool) {
	if !m.acquire() {
		return m, false
	}
	return (*heldMappings)(m), true
}

// End implements BatchLookup.
func (m *Mappings) End() { m.release() }

// warm is that of heldMappings: without it, the table's would be promoted, which may be
// missing or change meanwhile. The rows need none.
func (m *Mappings) warm(b []byte) (done int) { return len(b) }

// heldMappings is Mappings while it is acquired.
type heldMappings Mappings

// VL2 implements Lookup.
func (m *heldMappings) VL2(vnet uint32, mac log.MAC) (Underlay, bool) { return m.vl2(vnet, mac) }

// VL3 implements Lookup.
func (m *heldMappings) VL3(vnet uint32, ip netip.Addr) (log.MAC, Underlay, bool) {
	return m.vl3(vnet, ip)
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

// catchUp is fresh for what was applied since. A lookup never waits for a table to be
// made by Run.
func (m *Mappings) catchUp() bool {
	if m.changed == nil {
		m.turn.Lock()
	} else if !m.turn.TryLock() {
		return false
	}
	defer m.turn.Unlock()
	return m.advance(m.changed == nil)
}

// advance follows the log to its head; the caller has the turn. Where the table must be
// made, it is if that is allowed, and else Run is told to.
func (m *Mappings) advance(mayRebuild bool) bool {
	for {
		at, head := m.at.Load(), m.source.Head()
		if at != nil && at.reaches(head) {
			return true
		}
		followed, err := m.step(at, head)
		switch {
		case err != nil:
			m.broken.Store(true)
			m.replace(nil, nil)
			m.logger.Error("SVP: the log cannot be read: lookups use the state itself", "error", err)
			return false
		case followed:
		case mayRebuild:
			m.rebuild(head)
		default:
			m.want()
			return false
		}
	}
}

// replace sets the table and its position.
func (m *Mappings) replace(t *mappingTable, at *position) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mappingTable = t
	m.at.Store(at)
}

// step notes some of the entries from at towards head. false without an error means that
// the table must be made from the rows: there is none, the entries are compacted, or
// they are of another log.
func (m *Mappings) step(at *position, head log.Cursor) (bool, error) {
	if at == nil || at.cluster != head.Cluster || at.seq > head.Seq || at.seq+rebuildBehind < head.Seq {
		return false, nil
	}
	entries, err := m.entriesFrom(at)
	if err != nil {
		return false, nil // compacted, or another log
	}
	next := &position{at.cluster, head.Seq, head.Chain}
	events := make([]*log.Event, len(entries))
	for i, entry := range entries {
		if events[i], err = entry.Event(); err != nil {
			return false, fmt.Errorf("seq %d: %w", entry.Seq, err)
		}
		next.seq, next.chain = entry.Seq, entry.Hash.Prefix()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, e := range events {
		if err := m.apply(e); err != nil {
			return false, fmt.Errorf("seq %d: %w", entries[i].Seq, err)
		}
	}
	m.at.Store(next)
	return true, nil
}

// entriesFrom returns the entries after at, some of them if there are many, and
// log.ErrOtherLog if the log has another entry there. It reads that entry with them,
// which is one read of the log for each change in place of two.
func (m *Mappings) entriesFrom(at *position) ([]log.Entry, error) {
	if at.seq == 0 {
		return m.source.Entries(0, entryBatch)
	}
	entries, err := m.source.Entries(at.seq-1, entryBatch)
	switch {
	case err != nil:
		return nil, err
	case len(entries) == 0 || entries[0].Seq != at.seq || entries[0].Hash.Prefix() != at.chain:
		return nil, fmt.Errorf("seq %d with chain %s: %w", at.seq, at.chain, log.ErrOtherLog)
	case len(entries) > 1:
		return entries[1:], nil
	}
	// A read may end after each whole change.
	if entries, err = m.source.Entries(at.seq, entryBatch); err == nil {
		err = hasEntry(m.source, at.seq, at.chain)
	}
	return entries, err
}

// rebuild makes everything from the rows, in batches, so that applying the log does not
// wait for all of it. The rows are of head or later, of different moments. Entries
// after head are then noted, or noted again, which apply allows. The old table is
// released first: both at once would double the memory.
func (m *Mappings) rebuild(head log.Cursor) {
	m.replace(nil, nil)
	m.loaded.Store(0)
	mix := newMixer()
	t := &mappingTable{
		nets: make(map[log.UUID]uint32), nodes: newNodeTable(),
		macs: slots.New[macKey, uint32](mix.mac), ips: slots.New[ipKey, hostRow](mix.ip),
	}
	m.source.View(func(rows Rows) {
		for network, vnet := range rows.Networks() {
			t.nets[network] = vnet
		}
	})
	for last, more := (log.MAC{}), true; more; {
		var n int64
		m.source.View(func(rows Rows) { last, n, more = t.putSome(rows, last) })
		m.loaded.Add(n)
	}
	m.replace(t, &position{head.Cluster, head.Seq, head.Chain})
}

// rebuildBatch is how many rows are read at a time: the state is locked for a few
// milliseconds.
const rebuildBatch = 8192

// putSome puts the NICs after a MAC, and returns the last MAC, how many there were, and
// whether there may be more.
func (m *mappingTable) putSome(rows Rows, after log.MAC) (last log.MAC, n int64, more bool) {
	for nic := range rows.AllNICs(after) {
		if n == rebuildBatch {
			return last, n, true
		}
		m.put(locationOf(nic))
		last = nic.MAC
		n++
	}
	return last, n, false
}

// Follow makes Run keep m up with the log, in place of lookups that would wait for the
// table to be made. changed returns a channel that is closed when more is applied than at
// the call. Call it before the first lookup; then Run must run.
func (m *Mappings) Follow(changed func() <-chan struct{}) { m.changed = changed }

// followPause is how long Run waits after a change, for more of them: a lookup in
// between notes them itself.
const followPause = 10 * time.Millisecond

// Run makes the table and keeps it up with the log until ctx ends. It returns nil.
func (m *Mappings) Run(ctx context.Context) error {
	for !m.broken.Load() {
		changed := m.changed() // taken before the log is read
		m.turn.Lock()
		m.advance(true)
		m.turn.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-m.wanted:
		case <-changed:
			wait(ctx, followPause)
		}
	}
	<-ctx.Done()
	return nil
}

// errLoading: the table is not made.
var errLoading = errors.New("the SVP server reads the mappings")

// want tells Run that the table must be made.
func (m *Mappings) want() {
	select {
	case m.wanted <- struct{}{}:
	default:
	}
}

// Ready returns nil if the table is made and follows the log, and otherwise how far it
// is. A server that is not ready still answers, from the rows.
func (m *Mappings) Ready() error {
	err := m.missing()
	if err != nil {
		m.want() // not each change of the log's identity is announced
	}
	return err
}

// missing is Ready.
func (m *Mappings) missing() error {
	if m.broken.Load() {
		return nil // said in the log; the rows answer
	}
	at := m.at.Load()
	head := m.source.Head()
	switch {
	case at == nil:
		return fmt.Errorf("%w: %d NICs so far", errLoading, m.loaded.Load())
	case at.reaches(head):
		return nil
	case at.cluster != head.Cluster || at.seq > head.Seq || at.seq+rebuildBehind < head.Seq:
		return fmt.Errorf("%w again: it has them of seq %d of cluster %s, the log is at %d of %s", errLoading, at.seq, at.cluster, head.Seq, head.Cluster)
	}
	if err := hasEntry(m.source, at.seq, at.chain); err != nil {
		return fmt.Errorf("%w again: %w", errLoading, err)
	}
	return nil
}
