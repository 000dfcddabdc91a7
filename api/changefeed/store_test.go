package changefeed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"rutter/log"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a Store in memory: the real bytes of entries that a test wants.
type memory struct {
	cluster log.UUID
	encoder *log.Encoder

	mu       sync.Mutex // protects what follows
	entries  []log.Entry
	hash     log.Hash
	floor    log.Seq
	time     log.Time
	changed  chan struct{}
	notReady error
	hidden   int // entries at the end that this server has not applied yet
}

func newMemory() *memory {
	return &memory{cluster: log.UUID{15: 0xc1}, encoder: log.NewEncoder(), changed: make(chan struct{}), time: 1_795_251_600_123_456_789}
}

// write appends events as one change.
func (m *memory) write(t interface{ Fatal(...any) }, events ...*log.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.time += 1_000_000
	for i, e := range events {
		e.Time, e.More, e.Scopes = m.time, uint32(len(events)-1-i), []log.Scope{log.AllScope()}
		b, err := m.encoder.Event(e)
		if err != nil {
			t.Fatal(err)
		}
		seq := log.Seq(len(m.entries) + 1)
		m.hash = m.hash.Next(seq, b)
		m.entries = append(m.entries, log.Entry{Seq: seq, Hash: m.hash, Bytes: slices.Clone(b)})
	}
	m.wakeLocked()
}

func (m *memory) wakeLocked() {
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *memory) setReady(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notReady = err
}

// compact forgets the entries up to a seq.
func (m *memory) compact(floor log.Seq) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.floor = floor
}

// hide leaves out the last entries, until hide(0).
func (m *memory) hide(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hidden = n
	m.wakeLocked()
}

func (m *memory) headLocked() log.Seq { return log.Seq(len(m.entries) - m.hidden) }

func (m *memory) at(seq log.Seq) log.Cursor {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.atLocked(seq)
}

func (m *memory) atLocked(seq log.Seq) log.Cursor {
	c := log.Cursor{Cluster: m.cluster, Seq: seq}
	if seq > 0 {
		c.Chain = m.entries[seq-1].Hash.Prefix()
	}
	return c
}

func (m *memory) Head() log.Cursor {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.atLocked(m.headLocked())
}

func (m *memory) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

func (m *memory) Entries(after log.Seq, limit int) ([]log.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	head := m.headLocked()
	switch {
	case after < m.floor:
		return nil, log.ErrCompacted
	case after > head:
		return nil, log.ErrAhead
	}
	return slices.Clone(m.entries[after:min(int(after)+limit, int(head))]), nil
}

func (m *memory) CheckCursor(c log.Cursor) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case c.Cluster != m.cluster:
		return log.ErrOtherLog
	case c.Seq > m.headLocked():
		return log.ErrAhead
	case c.Seq < m.floor:
		return log.ErrCompacted
	case c != m.atLocked(c.Seq):
		return log.ErrOtherLog
	}
	return nil
}

func (m *memory) Consistent(context.Context) (log.Seq, error) {
	m.hide(0)
	return m.Head().Seq, nil
}

func (m *memory) Ready() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.notReady
}

func (m *memory) Serving() error { return nil }

var errNotReady = errors.New("no leader is known")

// objects makes events of objects, with the revisions and old values that a
// server gives them.
type objects map[string]*log.Event

// put creates or updates an object; what says what changed, nil for a delete.
func (o objects) put(object log.Object) *log.Event {
	key := fmt.Sprint(object.Kind(), " ", object.ID())
	e := &log.Event{Kind: object.Kind(), ID: object.ID(), Actor: "test", Action: log.Create, Revision: 1, Object: object}
	if before := o[key]; before != nil {
		e.Action, e.Revision = log.Update, before.Revision+1
		e.Changed = log.Diff(before.Object, object)
	}
	o[key] = e
	return e
}

// remove deletes an object.
func (o objects) remove(object log.Object) *log.Event {
	key := fmt.Sprint(object.Kind(), " ", object.ID())
	before := o[key]
	delete(o, key)
	return &log.Event{Kind: object.Kind(), ID: object.ID(), Actor: "test", Action: log.Delete, Revision: before.Revision + 1, Object: before.Object}
}
