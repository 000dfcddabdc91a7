package feedserver

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"rutter/api/internal/apitest"
	"rutter/log"
)

// late is a store that says that it has not reached its end, until it is asked
// to be as far as the leader.
type late struct {
	*apitest.Memory
	mu     sync.Mutex // protects what follows
	behind int        // entries; 0: it is there
	asked  int
}

func (l *late) Head() log.Cursor {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.CursorAt(l.Memory.Head().Seq - log.Seq(l.behind))
}

func (l *late) Consistent(ctx context.Context) (log.Seq, error) {
	l.mu.Lock()
	l.behind = 0
	l.asked++
	l.mu.Unlock()
	return l.Memory.Consistent(ctx)
}

// SAFETY F5: a server that is behind a cursor reaches it before it judges the
// cursor: who was fed by a server that was further is not reset.
func TestFeedWaitsForTheCursor(t *testing.T) {
	b := newBed(t)
	b.Furnish()
	b.NIC(apitest.FabricA, apitest.CN1)
	m := apitest.NewMirror(apitest.CN1)
	b.sync(t, m)
	store := &late{Memory: b.Store, behind: 3}
	other := &bed{b.World, newFeed(store, slog.DiscardHandler)}
	other.sync(t, m)
	if len(m.Calls) > 0 || store.asked != 1 {
		t.Errorf("calls %q, and the leader was asked %d times; want no calls, and once", m.Calls, store.asked)
	}
}

// SAFETY F5: who takes nothing until what comes next for it is no longer kept is
// treated as a new hello: it is reset on the connection that it has, and then
// holds what the log says.
func TestFeedThatFellBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.Furnish()
		b.NIC(apitest.FabricA, apitest.CN1)
		m := apitest.NewMirror(apitest.CN1)
		m.Until = 1 << 62
		reads := make(chan struct{})
		m.Check = func(*apitest.Mirror, log.Seq) error { <-reads; return nil }
		c := b.connect(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Follow(t.Context(), m.Hello(), m) }()
		synctest.Wait() // it is at its first bookmark, and stays there
		b.NIC(apitest.FabricA, apitest.CN2)
		synctest.Wait() // the server is in the middle of a write to it
		b.NIC(apitest.FabricB, apitest.CN2)
		synctest.Wait()
		b.Store.CompactWithNext() // nor does the server have it in memory
		b.NIC(apitest.FabricA, apitest.CN2)
		synctest.Wait()
		m.Calls = nil
		close(reads)
		synctest.Wait()
		c.Close()
		<-ended
		<-c.Done
		if !slices.Contains(m.Calls, "reset compacted") {
			t.Errorf("calls %q, want a reset on the way", m.Calls)
		}
		if err := b.Compare(m, b.Store.Head().Seq); err != nil {
			t.Error(err)
		}
	})
}
