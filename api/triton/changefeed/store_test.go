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

func (m *memory) headLocked() log.Seq { return log.Seq(len(m.entries)) }

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

func (m *memory) Consistent(context.Context) (log.Seq, error) { return m.Head().Seq, nil }

func (m *memory) Ready() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.notReady
}

func (m *memory) Serving() error { return nil }

// follower is a server that may be behind the log.
type follower struct {
	*memory
	behind sync.Mutex // protects stopped and at
	// stopped: it has applied entries up to at, and no more for now.
	stopped bool
	at      log.Seq
}

// stop makes it apply nothing until goOn or Consistent is called.
func (f *follower) stop() {
	f.behind.Lock()
	defer f.behind.Unlock()
	if !f.stopped {
		f.stopped, f.at = true, f.memory.Head().Seq
	}
}

func (f *follower) goOn() {
	f.behind.Lock()
	f.stopped = false
	f.behind.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wakeLocked()
}

func (f *follower) Head() log.Cursor {
	f.behind.Lock()
	defer f.behind.Unlock()
	if f.stopped {
		return f.memory.at(f.at)
	}
	return f.memory.Head()
}

func (f *follower) Entries(after log.Seq, limit int) ([]log.Entry, error) {
	head := f.Head().Seq
	entries, err := f.memory.Entries(after, limit)
	if n := int(head) - int(after); err == nil && len(entries) > n {
		entries = entries[:max(n, 0)]
	}
	return entries, err
}

func (f *follower) CheckCursor(c log.Cursor) error {
	if err := f.memory.CheckCursor(c); err != nil || c.Seq <= f.Head().Seq {
		return err
	}
	return log.ErrAhead
}

func (f *follower) Consistent(context.Context) (log.Seq, error) {
	f.goOn()
	return f.Head().Seq, nil
}

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
