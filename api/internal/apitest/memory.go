// Package apitest has what tests of package api and of the packages below it share: a
// store in memory, a subscriber that keeps what it is sent, and a world of networks and
// compute nodes. It imports neither package.
package apitest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
)

// Memory is a store in memory. It makes the real decisions and the real bytes, without
// a cluster. Its methods may be called concurrently.
type Memory struct {
	mu       sync.RWMutex // protects what follows
	cluster  log.UUID
	state    *projections.State
	entries  []log.Entry
	hash     log.Hash
	floor    log.Seq
	changed  chan struct{}
	seen     map[log.UUID]log.Result
	contents map[log.UUID]log.Content // of applied changes
	encoder  *log.Encoder

	errors     Errors
	failWrites error // Propose returns it, failures times
	failures   int
	compacts   bool // the next change raises the floor to the head
	now        func() time.Time
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{
		cluster: UUID(0xc1), state: projections.NewState(), changed: make(chan struct{}),
		seen: make(map[log.UUID]log.Result), contents: make(map[log.UUID]log.Content), encoder: log.NewEncoder(),
	}
}

func (m *Memory) Propose(_ context.Context, c *log.Change) (log.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failWrites != nil && m.failures > 0 {
		m.failures--
		return log.Result{}, m.failWrites
	}
	content := c.Content
	if content.IsZero() {
		var err error
		if content, err = m.encoder.Content(c); err != nil {
			return log.Result{}, err
		}
	}
	if first, ok := m.seen[c.ID]; ok {
		if m.contents[c.ID] != content {
			return log.Result{ChangeID: c.ID, Refusal: &log.Refusal{Code: log.CodeIDReused}}, nil
		}
		return first, nil
	}
	m.contents[c.ID] = content
	c.Time, c.Seed = m.timeLocked(), uint64(len(m.entries)+len(m.seen)+1)
	events, result := rules.Decide(m.state, c)
	result.First, result.Last = log.Seq(len(m.entries)), log.Seq(len(m.entries))
	for i, e := range events {
		seq := log.Seq(len(m.entries) + 1)
		b, err := m.encoder.Event(e)
		if err != nil {
			return result, err
		}
		if _, err := m.state.Apply(seq, e); err != nil {
			panic(err) // Decide and Apply differ
		}
		m.hash = m.hash.Next(seq, b)
		m.entries = append(m.entries, log.Entry{Seq: seq, Hash: m.hash, Bytes: b})
		if i == 0 {
			result.First = seq
		}
		result.Last = seq
	}
	m.seen[c.ID] = result
	if m.compacts {
		m.floor, m.compacts = log.Seq(len(m.entries)), false
	}
	if len(events) > 0 {
		close(m.changed)
		m.changed = make(chan struct{})
	}
	return result, nil
}

// timeLocked is the time of the next change.
func (m *Memory) timeLocked() log.Time {
	last := m.state.Time()
	switch {
	case m.now != nil:
		return max(last+1, log.TimeOf(m.now()))
	case last == 0:
		return 1_795_251_600_000_000_000
	}
	return last + 1_000_000
}

func (m *Memory) View(fn func(*projections.State, log.Cursor)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	fn(m.state, m.headLocked())
}

func (m *Memory) headLocked() log.Cursor {
	return log.Cursor{Cluster: m.cluster, Seq: log.Seq(len(m.entries)), Chain: m.chainLocked(log.Seq(len(m.entries)))}
}

func (m *Memory) chainLocked(seq log.Seq) (chain log.ChainPrefix) {
	if seq > 0 {
		chain = m.entries[seq-1].Hash.Prefix()
	}
	return chain
}

func (m *Memory) Head() log.Cursor {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.headLocked()
}

func (m *Memory) Floor() log.Seq {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.floor
}

func (m *Memory) Changed() <-chan struct{} {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.changed
}

func (m *Memory) Entries(after log.Seq, limit int) ([]log.Entry, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	switch {
	case after < m.floor:
		return nil, log.ErrCompacted
	case after > log.Seq(len(m.entries)):
		return nil, log.ErrAhead
	}
	end := min(int(after)+limit, len(m.entries))
	for end < len(m.entries) && end > int(after) {
		if e, err := m.entries[end-1].Event(); err != nil || e.More == 0 {
			break
		}
		end++
	}
	return slices.Clone(m.entries[after:end]), nil
}

func (m *Memory) CheckCursor(c log.Cursor) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	switch {
	case c.Cluster != m.cluster:
		return log.ErrOtherLog
	case c.Seq > log.Seq(len(m.entries)):
		return log.ErrAhead
	case c.Seq < m.floor:
		return log.ErrCompacted
	case c.Chain != m.chainLocked(c.Seq):
		return log.ErrOtherLog
	}
	return nil
}

func (m *Memory) WaitSeq(ctx context.Context, seq log.Seq) error {
	for {
		changed := m.Changed()
		if m.Head().Seq >= seq {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (m *Memory) Consistent(context.Context) (log.Seq, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return log.Seq(len(m.entries)), m.errors.Consistent
}

func (m *Memory) Serving() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.errors.Serving
}

func (m *Memory) Ready() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.errors.Ready
}

// AwaitReady returns what Ready does when Errors.Election is closed, or ctx ends.
func (m *Memory) AwaitReady(ctx context.Context) error {
	m.mu.RLock()
	election := m.errors.Election
	m.mu.RUnlock()
	if election != nil {
		select {
		case <-election:
		case <-ctx.Done():
		}
	}
	return m.Ready()
}

// FailWrites makes the next n changes fail with err.
func (m *Memory) FailWrites(n int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failWrites, m.failures = err, n
}

// SetClock makes changes have the time of a clock. Without it each is 1 ms after the one
// before.
func (m *Memory) SetClock(now func() time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = now
}

// SetFeature sets the feature version of the log.
func (m *Memory) SetFeature(version uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.SetFeature(version)
}

// Idle reports whether no call holds the state now.
func (m *Memory) Idle() bool {
	idle := m.mu.TryLock()
	if idle {
		m.mu.Unlock()
	}
	return idle
}

// Compact raises the floor to the head.
func (m *Memory) Compact() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.floor = log.Seq(len(m.entries))
}

// CompactWithNext makes the next change raise the floor to the head in the same step,
// so that no reader sees its entries before.
func (m *Memory) CompactWithNext() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.compacts = true
}

// Dump returns the state as text.
func (m *Memory) Dump() string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return string(m.state.Dump())
}

// Replay returns the state of a memory at seq.
func (m *Memory) Replay(seq log.Seq) *projections.State {
	m.mu.RLock()
	defer m.mu.RUnlock()
	state := projections.NewState()
	for _, e := range m.entries[:seq] {
		event, err := e.Event()
		if err != nil {
			panic(err)
		}
		if _, err := state.Apply(e.Seq, event); err != nil {
			panic(err)
		}
	}
	return state
}

// CursorAt returns the cursor of a seq.
func (m *Memory) CursorAt(seq log.Seq) log.Cursor {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return log.Cursor{Cluster: m.cluster, Seq: seq, Chain: m.chainLocked(seq)}
}

// Replace replaces the log by another one: of another cluster after a restore, of the
// same after a rebuild. Its entries up to common stay; n others follow.
func (m *Memory) Replace(t T, cluster log.UUID, common log.Seq, n int) {
	t.Helper()
	kept := m.Replay(common)
	other := NewMemory()
	other.cluster, other.state = cluster, kept
	m.mu.RLock()
	other.entries = append(other.entries, m.entries[:common]...)
	m.mu.RUnlock()
	if common > 0 {
		other.hash = other.entries[common-1].Hash
	}
	for i := range n {
		other.Tag(t, fmt.Sprintf("other%d", i))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cluster, m.state, m.entries, m.hash = other.cluster, other.state, other.entries, other.hash
	close(m.changed)
	m.changed = make(chan struct{})
}

// Tag writes one entry.
func (m *Memory) Tag(t T, name string) {
	t.Helper()
	tag := &log.NICTag{Name: name, MTU: 1500}
	n := 0
	for _, c := range name {
		n = 31*n + int(c)
	}
	id := UUID(n)
	id[6], id[8] = 0x70, 0x80
	result, err := m.Propose(context.Background(), &log.Change{ID: id, Actor: "test", Ops: []log.Op{{Action: log.Create, Kind: log.KindNICTag, Object: tag, Set: []string{"mtu", "name"}}}})
	if err != nil || result.Refusal != nil {
		t.Fatalf("tag %s: %v, %v", name, err, result.Refusal)
	}
}

// Errors are what methods of a Memory return.
type Errors struct {
	Ready, Serving, Consistent error
	// Election is closed when there is a leader, for which AwaitReady waits; nil: it does
	// not wait.
	Election <-chan struct{}
}

// Fail sets what methods return from now on.
func (m *Memory) Fail(errors Errors) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.errors = errors
}

// Cluster returns the cluster id of the log.
func (m *Memory) Cluster() log.UUID { return m.Head().Cluster }

// All returns all entries, independent of the floor.
func (m *Memory) All() []log.Entry {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Clone(m.entries)
}
