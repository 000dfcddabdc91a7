package changefeed

import (
	"strings"
	"testing"

	"rutter/log"
)

// rebuild has the log be another one under the same seqs, of the same cluster, that
// is more entries longer.
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
