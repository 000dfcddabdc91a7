package early

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"rutter/log"
)

// gated is a log store whose writes wait for the test, which says how each ends.
type gated struct {
	*raft.InmemStore
	end    chan error
	writes [][]uint64
}

func (g *gated) StoreLogs(entries []*raft.Log) error {
	var indexes []uint64
	for _, e := range entries {
		indexes = append(indexes, e.Index)
	}
	g.writes = append(g.writes, indexes)
	if err := <-g.end; err != nil {
		return err
	}
	return g.InmemStore.StoreLogs(entries)
}

// First bytes of the commands: batch is of changes, floor of something else.
const batch, floor byte = 1, 2

func newLog(below raft.LogStore, leads *bool, failed *error, admit func([]*raft.Log) error) *Log {
	return New(below, Options{
		Leads:   func() bool { return *leads },
		Changes: func(command []byte) bool { return len(command) > 0 && command[0] == batch },
		Report:  func(err error) { *failed = err },
		Admit:   admit,
	})
}

func gatedLog(leads *bool, failed *error) (*Log, *gated) {
	g := &gated{InmemStore: raft.NewInmemStore(), end: make(chan error)}
	return newLog(g, leads, failed, nil), g
}

func entriesAt(first, last uint64) (entries []*raft.Log) {
	for i := first; i <= last; i++ {
		entries = append(entries, &raft.Log{Index: i, Term: 1, Type: raft.LogCommand, Data: []byte{batch, byte(i)}})
	}
	return entries
}

// stores stores in a goroutine, and returns what says whether that has returned.
func stores(t *testing.T, e *Log, entries []*raft.Log) (returned func() bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := e.StoreLogs(entries); err != nil {
			t.Error(err)
		}
	}()
	return func() bool {
		synctest.Wait()
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
}

// A leader's changes are stored at once and read from memory, but nothing of them
// is let out before they are on disk, and then they are written together.
func TestEarlyLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leads, failed := true, error(nil)
		e, g := gatedLog(&leads, &failed)
		for i := uint64(1); i <= 3; i++ {
			if !stores(t, e, entriesAt(i, i))() {
				t.Fatalf("entry %d waits for the disk", i)
			}
		}
		var entry raft.Log
		if err := e.GetLog(2, &entry); err != nil || entry.Index != 2 {
			t.Errorf("entry 2 is read as %d, error %v", entry.Index, err)
		}
		if last, err := e.LastIndex(); err != nil || last != 3 {
			t.Errorf("the log ends at %d, error %v; want 3", last, err)
		}
		if got := e.Bound(3); got != 0 {
			t.Errorf("commits are told up to %d, with nothing on disk", got)
		}
		applied := make(chan error, 1)
		go func() { applied <- e.Await(2) }()
		g.end <- nil // entry 1
		synctest.Wait()
		if got := e.Bound(3); got != 1 {
			t.Errorf("commits are told up to %d, with entry 1 on disk", got)
		}
		if len(applied) > 0 {
			t.Error("entry 2 is applied before it is on disk")
		}
		g.end <- nil // entries 2 and 3
		if err := <-applied; err != nil {
			t.Error(err)
		}
		e.Settle()
		if len(g.writes) != 2 || len(g.writes[1]) != 2 {
			t.Errorf("written as %v, want the second and third entry together", g.writes)
		}
		if got := e.Bound(3); got != 3 {
			t.Errorf("commits are told up to %d, with all on disk", got)
		}
	})
}

// What is no change of a leader's is on disk when StoreLogs returns, and so is
// everything before it.
func TestEarlyLogWaits(t *testing.T) {
	barrier := []*raft.Log{{Index: 2, Term: 1, Type: raft.LogBarrier}}
	other := []*raft.Log{{Index: 2, Term: 1, Type: raft.LogCommand, Data: []byte{floor}}}
	for _, c := range []struct {
		name   string
		leads  bool
		second []*raft.Log
	}{
		{"follower", false, entriesAt(2, 2)}, {"barrier", true, barrier}, {"floor", true, other},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leads, failed := true, error(nil)
				e, g := gatedLog(&leads, &failed)
				if !stores(t, e, entriesAt(1, 1))() {
					t.Fatal("the first entry waits for the disk")
				}
				leads = c.leads
				returned := stores(t, e, c.second)
				if returned() || len(g.writes) != 1 {
					t.Errorf("the second entry does not wait for the first, written are %v", g.writes)
				}
				g.end <- nil
				if returned() {
					t.Error("the second entry does not wait for the disk")
				}
				g.end <- nil
				if !returned() {
					t.Error("the second entry waits for ever")
				}
			})
		})
	}
}

// Entries are on disk before they are deleted, and no more than maxEarly wait.
func TestEarlyLogBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leads, failed := true, error(nil)
		e, g := gatedLog(&leads, &failed)
		if !stores(t, e, entriesAt(1, maxEarly))() {
			t.Fatal("the first entries wait for the disk")
		}
		full := stores(t, e, entriesAt(maxEarly+1, maxEarly+1))
		deleted := make(chan error, 1)
		go func() { deleted <- e.DeleteRange(maxEarly, maxEarly) }()
		if full() {
			t.Errorf("more than %d entries wait", maxEarly)
		}
		if len(deleted) > 0 {
			t.Error("an entry is deleted that is being written")
		}
		g.end <- nil
		if err := <-deleted; err != nil {
			t.Error(err)
		}
		if !full() {
			t.Error("an entry waits although there is room")
		}
		g.end <- nil
		e.Settle()
	})
}

// After a write has failed nothing is let out or stored any more.
func TestEarlyLogFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("disk")
		leads, failed := true, error(nil)
		e, g := gatedLog(&leads, &failed)
		if !stores(t, e, entriesAt(1, 2))() {
			t.Fatal("the first entries wait for the disk")
		}
		g.end <- broken
		e.Settle()
		if !errors.Is(failed, broken) {
			t.Errorf("reported is %v, want the disk's error", failed)
		}
		if err := e.Await(1); !errors.Is(err, broken) {
			t.Errorf("the FSM is told %v, want the disk's error", err)
		}
		if got := e.Bound(2); got != 0 {
			t.Errorf("commits are told up to %d after an error", got)
		}
		if err := e.StoreLogs(entriesAt(3, 3)); !errors.Is(err, broken) {
			t.Errorf("the next entry is stored: %v", err)
		}
	})
}

// A server that has no room stores nothing, except what takes the place of entries that
// it has deleted: raft believes to have those already.
func TestRefusedEntriesAreOwed(t *testing.T) {
	cause := log.ErrNoRoom
	leads, failed := false, error(nil)
	refuse := error(nil)
	e := newLog(raft.NewInmemStore(), &leads, &failed, func([]*raft.Log) error { return refuse })
	if err := e.StoreLogs(entriesAt(1, 3)); err != nil {
		t.Fatal(err)
	}
	if err := e.DeleteRange(3, 3); err != nil {
		t.Fatal(err)
	}
	refuse = cause
	if err := e.StoreLogs(entriesAt(3, 3)); err != nil {
		t.Errorf("an entry in the place of one that was deleted: %v", err)
	}
	if err := e.StoreLogs(entriesAt(4, 4)); !errors.Is(err, log.ErrNoRoom) {
		t.Errorf("the next one: %v", err)
	}
	if err := e.DeleteRange(2, 3); !errors.Is(err, log.ErrNoRoom) {
		t.Errorf("a deletion at the end: %v", err)
	}
	if err := e.DeleteRange(1, 1); err != nil {
		t.Errorf("a deletion at the front: %v", err)
	}
	if failed != nil {
		t.Errorf("reported: %v", failed)
	}
}
