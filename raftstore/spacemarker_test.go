package raftstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// A marker that waits while there is no room for it is refused, and raft takes its
// snapshot later: it must not keep raft, and so the server, from ending.
func TestMarkerWithoutRoom(t *testing.T) {
	t.Parallel()
	n := one(t, func(c *Config) { c.DiskLowWater = plenty })
	must(t, n, tagChange(newID(), "one"))
	n.disks.space.lowWaterNow.Store(nothing)
	until(t, n, "changes.db is not written", func() bool { return errorIn(&n.disks.space.file) != nil })
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
	n.disks.space.lowWaterNow.Store(plenty)
	until(t, n, "changes.db is written", func() bool { return errorIn(&n.disks.space.file) == nil })
	if err := n.raft.Load().Snapshot().Error(); err != nil {
		t.Errorf("a snapshot with room again: %v", err)
	}
}

// A server gives the leadership on to one that may keep it: not for its clock to one
// without room, nor for want of room to one whose clock is wrong.
func TestHeirMayLead(t *testing.T) {
	t.Parallel()
	nodes, offsets := skewed(t, func(c *Config) { c.Heartbeat = 2 * time.Second }) // a slow machine is not to elect another one
	for i, n := range nodes {
		n.disks.space.lowWaterNow.Store(plenty)
		must(t, nodes[0], tagChange(newID(), fmt.Sprintf("t%d", i)))
	}
	led(t, nodes, 0)
	lead := nodes[0]
	nodes[1].disks.space.lowWaterNow.Store(nothing)
	becomes(t, "s2 has no room", func() bool { return nodes[1].Room().Low })
	for range 20 {
		best, err := lead.lead.successor(patience(t), lead.raft.Load())
		if err == nil && best.ID != "s3" {
			t.Fatalf("the heir is %s, which has no room", best.ID)
		}
	}
	nodes[1].disks.space.lowWaterNow.Store(plenty)
	offsets[1].Store(int64(year))
	becomes(t, "s2's clock is wrong", func() bool { return lead.times.clocks.Agreement.Load().Wrong("s2") })
	lead.disks.space.lowWaterNow.Store(below(lead))
	was := make(map[string]bool)
	becomes(t, "s3 leads", func() bool {
		for _, n := range nodes[1:] {
			was[n.cfg.ID] = was[n.cfg.ID] || n.raft.Load().State() == raft.Leader
		}
		return was["s3"]
	})
	if was["s2"] {
		t.Errorf("s2, whose clock is wrong, was given the leadership")
	}
}
