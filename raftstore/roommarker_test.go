package raftstore

import (
	"strings"
	"testing"
)

// A marker that waits while there is no room for it is refused, and raft takes its
// snapshot later: it must not keep raft, and so the server, from ending.
func TestMarkerWithoutRoom(t *testing.T) {
	t.Parallel()
	n := one(t, func(c *Config) { c.DiskLowWater = plenty })
	must(t, n, tagChange(newID(), "one"))
	n.room.lowWaterNow.Store(nothing)
	until(t, n, "changes.db is not written", func() bool { return errorIn(&n.room.file) != nil })
	failed := make(chan error, 1)
	go func() { failed <- n.raft.Load().Snapshot().Error() }()
	select {
	case err := <-failed:
		if err == nil || !strings.Contains(err.Error(), ErrNoRoom.Error()) {
			t.Errorf("a snapshot without room: %v, want %v", err, ErrNoRoom)
		}
	case <-patience(t).Done():
		t.Error("a snapshot without room waits for it")
	}
	n.room.lowWaterNow.Store(plenty)
	until(t, n, "changes.db is written", func() bool { return errorIn(&n.room.file) == nil })
	if err := n.raft.Load().Snapshot().Error(); err != nil {
		t.Errorf("a snapshot with room again: %v", err)
	}
}
