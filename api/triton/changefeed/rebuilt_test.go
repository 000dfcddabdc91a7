package changefeed

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"rutter/log"
)

// rebuild replaces the log by another one under the same seqs, of the same cluster,
// that is more entries longer.
func (m *memory) rebuild(t *testing.T, more int) {
	other, all := newMemory(), objects{}
	m.mu.Lock()
	n := len(m.entries)
	m.mu.Unlock()
	for i := range n + more {
		other.write(t, all.put(&log.VM{UUID: log.UUID{9, byte(i)}}))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entries, m.hash = other.entries, other.hash
	m.wakeLocked()
}

// The listeners of a server that is rebuilt are closed with the reason, and get
// nothing of the log that it has then, however long that is.
func TestListenersOfARebuiltServer(t *testing.T) {
	for more := range 3 {
		store, all := newMemory(), objects{}
		_, address := served(t, Config{Store: store})
		l, _ := register(t, address, V1, `{"instance":"i1","changeKind":{"resource":"vm","subResources":["create"]}}`)
		store.write(t, all.put(&log.VM{UUID: log.UUID{1}}))
		if item := l.text(); item["changedResourceId"] != (log.UUID{1}).String() {
			t.Fatalf("before: %v", item)
		}
		store.rebuild(t, more)
		if code, reason := l.closed(); !strings.Contains(reason, "replaced: register anew") {
			t.Errorf("%d more: closed with %d %q", more, code, reason)
		}
	}
}

// A listener that is behind reads for itself: nothing of the log that a rebuilt server
// has then, also before the hub has noticed and closed it; nor does one join there
// whose cursor was found right a moment before.
func TestCatchingUpOnARebuiltServer(t *testing.T) {
	for _, kept := range []bool{false, true} {
		for more := range 3 {
			store, all := newMemory(), objects{}
			h, l := newHub(store), &listener{woken: make(chan struct{}, 1), over: make(chan struct{}), reg: new(registration)}
			if kept {
				h.enter()
			}
			for i := range 3 {
				store.write(t, all.put(&log.VM{UUID: log.UUID{1, byte(i)}}))
			}
			from := store.at(1)
			if kept {
				h.advance()
			} else {
				h.enter()
			}
			h.instances[""] = []*listener{l}
			_, upTo := h.due(l)
			if items, err := h.after(l, 0, upTo); err != nil || len(items) == 0 || items[0].cursor != from {
				t.Fatalf("before: %v, %v", items, err)
			}
			store.rebuild(t, more)
			items, err := h.after(l, 0, upTo)
			if len(items) > 0 && items[0].cursor != from || !kept && !errors.Is(err, errReplaced) {
				t.Errorf("kept %v, %d more: %v, %v", kept, more, items, err)
			}
			if _, err := h.join(&listener{reg: new(registration)}, &from); !errors.Is(err, errReplaced) {
				t.Errorf("kept %v, %d more: joined at a cursor of the log before: %v", kept, more, err)
			}
			if items, err := h.after(l, 0, upTo); len(items) > 0 {
				t.Errorf("kept %v, %d more: an ended listener got %v, %v", kept, more, items, err)
			}
		}
	}
}

// gapped is a Store that leaves out an entry.
type gapped struct {
	*memory
	without log.Seq
}

func (g gapped) Entries(after log.Seq, limit int) ([]log.Entry, error) {
	entries, err := g.memory.Entries(after, limit)
	return slices.DeleteFunc(entries, func(e log.Entry) bool { return e.Seq == g.without }), err
}

// A server that reads its log with a gap closes its listeners with the reason, and gives them
// nothing of what it has read; so does one listener that reads for itself.
func TestGapInTheLog(t *testing.T) {
	for without := log.Seq(2); without <= 4; without++ {
		store, all := newMemory(), objects{}
		store.write(t, all.put(&log.VM{UUID: log.UUID{1}}))
		h := newHub(gapped{store, without})
		l := &listener{woken: make(chan struct{}, 1), over: make(chan struct{}), reg: new(registration)}
		h.enter()
		h.instances[""] = []*listener{l}
		from := store.at(1)
		store.write(t, all.put(&log.VM{UUID: log.UUID{2}}), all.put(&log.VM{UUID: log.UUID{3}}))
		store.write(t, all.put(&log.VM{UUID: log.UUID{4}}), all.put(&log.VM{UUID: log.UUID{5}}))
		if items, err := h.read(from, &stamps{at: from, last: map[string]int64{}}); len(items) > 0 || !errors.Is(err, log.ErrCorrupt) {
			t.Errorf("read without entry %d: %d items, %v, want %v", without, len(items), err, log.ErrCorrupt)
		}
		h.advance()
		select {
		case <-l.over:
			if !strings.Contains(l.reason, "cannot read its log") || len(h.items) > 0 {
				t.Errorf("without entry %d: closed with %q, and kept %d items", without, l.reason, len(h.items))
			}
		default:
			t.Errorf("without entry %d: the listener goes on, and has missed it", without)
		}
	}
}
