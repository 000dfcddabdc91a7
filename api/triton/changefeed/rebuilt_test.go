package changefeed

import (
	"errors"
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
