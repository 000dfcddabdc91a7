package api

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"rutter/log"
)

// late is a memory that says that it has not reached its end, until it is asked
// to be as far as the leader.
type late struct {
	*memory
	behind int // entries; 0: it is there
	asked  int
}

func (l *late) Head() log.Cursor {
	head := l.memory.Head()
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.behind > 0 {
		head.Seq -= log.Seq(l.behind)
		head.Chain = l.chainLocked(head.Seq)
	}
	return head
}

func (l *late) Consistent(ctx context.Context) (log.Seq, error) {
	l.mu.Lock()
	l.behind = 0
	l.asked++
	l.mu.Unlock()
	return l.memory.Consistent(ctx)
}

// SAFETY F5: a server that is behind a cursor reaches it before it judges the
// cursor: who was fed by a server that was further is not reset.
func TestFeedWaitsForTheCursor(t *testing.T) {
	b := newBed(t)
	b.furnish()
	b.nic(fabricA, cn1)
	m := newMirror(cn1)
	b.sync(t, m)
	store := &late{memory: b.store, behind: 3}
	s, err := New(Config{Store: store, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	other := &bed{t, b.store, s}
	other.sync(t, m)
	if len(m.calls) > 0 || store.asked != 1 {
		t.Errorf("calls %q, and the leader was asked %d times; want no calls, and once", m.calls, store.asked)
	}
}

// SAFETY F5: who takes nothing until what comes next for it is no longer kept is
// treated as a new hello: it is reset on the connection that it has, and then
// holds what the log says.
func TestFeedThatFellBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.furnish()
		b.nic(fabricA, cn1)
		m := newMirror(cn1)
		m.until = 1 << 62
		reads := make(chan struct{})
		m.check = func(*mirror, log.Seq) error { <-reads; return nil }
		c := b.connect(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Follow(t.Context(), m.hello(), m) }()
		synctest.Wait() // it is at its first bookmark, and stays there
		b.nic(fabricA, cn2)
		synctest.Wait() // the server is in the middle of a write to it
		b.nic(fabricB, cn2)
		b.nic(fabricA, cn2)
		synctest.Wait()
		b.store.compact()
		b.s.tail.mu.Lock()
		b.s.tail.items = nil
		b.s.tail.mu.Unlock()
		m.calls = nil
		close(reads)
		synctest.Wait()
		c.Close()
		<-ended
		<-c.done
		if !slices.Contains(m.calls, "reset compacted") {
			t.Errorf("calls %q, want a reset on the way", m.calls)
		}
		if err := b.compare(m, b.store.Head().Seq); err != nil {
			t.Error(err)
		}
	})
}
