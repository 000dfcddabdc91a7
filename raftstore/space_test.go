package raftstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"rutter/log"
)

// deletion is a change that deletes a tag.
func deletion(name string) *log.Change {
	return &log.Change{ID: newID(), Actor: "test", Ops: []log.Op{{Action: log.Delete, Kind: log.KindNICTag, ID: name}}}
}

// roomy starts three servers whose low water the test moves: beyond what there is
// free on the disk, there is no room.
func roomy(t *testing.T) (nodes []*node, low func(*node, int64)) {
	nodes = three(t, func(c *Config) { c.DiskLowWater = 1 << 20 })
	return nodes, func(n *node, bytes int64) { n.disks.space.lowWaterNow.Store(bytes) }
}

const (
	plenty  = 1 << 20
	nothing = 1 << 60
)

// below is a low water above what a server has, whose reserve is not.
func below(n *node) int64 { return n.Room().Usable * 2 }

// TestClusterWithoutRoom: with a majority below the low water what grows is refused,
// by name, on all servers; deletes are not, reads go on, and with room writes are
// taken again by themselves.
func TestClusterWithoutRoom(t *testing.T) {
	t.Parallel()
	nodes, low := roomy(t)
	lead := leaderOf(t, nodes)
	must(t, lead, tagChange(newID(), "one"))
	must(t, lead, tagChange(newID(), "two"))
	for _, n := range nodes {
		low(n, below(n))
	}
	for _, n := range nodes {
		until(t, n, "the alarm", func() bool { return n.NoRoom() != nil })
	}
	for _, n := range nodes {
		if _, err := n.Propose(patience(t), tagChange(newID(), "three")); !errors.Is(err, ErrNoRoom) || errors.Is(err, ErrUnknown) {
			t.Errorf("%s: a create without room: %v, want ErrNoRoom", n.cfg.ID, err)
		}
		until(t, n, "ready without room", func() bool { return n.Ready() == nil })
		if _, err := n.Consistent(patience(t)); err != nil {
			t.Errorf("%s: a read: %v", n.cfg.ID, err)
		}
		if st := n.Status(); st.NoRoom == "" || !st.Room.Low || st.Room.Full {
			t.Errorf("%s: status %q %+v", n.cfg.ID, st.NoRoom, st.Room)
		}
	}
	must(t, nodes[0], deletion("one"))
	for _, n := range nodes {
		low(n, plenty)
	}
	for _, n := range nodes {
		until(t, n, "no alarm", func() bool { return n.NoRoom() == nil })
	}
	must(t, nodes[1], tagChange(newID(), "four"))
}

// TestOneWithoutRoom: one server without space stops no other. If it leads it hands over;
// in its reserve it takes no entries, and gets them when it has room.
func TestOneWithoutRoom(t *testing.T) {
	t.Parallel()
	nodes, low := roomy(t)
	was := leaderOf(t, nodes)
	must(t, was, tagChange(newID(), "one"))
	low(was, below(was))
	until(t, was, "another leader", func() bool {
		for _, n := range nodes {
			if n != was && n.lead.leading() {
				return true
			}
		}
		return false
	})
	low(was, nothing)
	until(t, was, "its reserve", func() bool { return was.Room().Full })
	before, err := was.raftLog.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	// Not at the server without room: if there is an election it learns of no leader, because
	// it cannot save a term.
	for i := range 20 {
		must(t, others(nodes, was)[0], tagChange(newID(), fmt.Sprintf("more_%d", i)))
	}
	if last, err := was.raftLog.LastIndex(); err != nil || last > before+1 {
		t.Errorf("it has %d entries more, without room; %v", last-before, err)
	}
	if was.NoRoom() != nil {
		t.Errorf("the alarm of one: %v", was.NoRoom())
	}
	if err := was.failure(); err != nil {
		t.Fatalf("it failed: %v", err)
	}
	low(was, plenty)
	var head log.Seq
	for _, n := range nodes {
		head = max(head, n.Head().Seq)
	}
	if err := was.WaitSeq(patience(t), head); err != nil {
		t.Errorf("with room it does not catch up: %v", err)
	}
}

// TestStartWithoutRoom: a server that has no room when it starts starts, serves what
// it has, waits with what would be written, and takes writes when there is room.
func TestStartWithoutRoom(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	must(t, n, tagChange(newID(), "one"))
	n.halt(t)
	cfg := n.cfg
	cfg.Listen = n.Address()
	cfg.DiskLowWater = nothing
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	again := launched(t, s)
	found := false
	again.View(func(v View) { _, found = v.State.Get(log.KindNICTag, "one") })
	if !found {
		t.Error("it does not serve what it has")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := again.Propose(ctx, tagChange(newID(), "two")); err == nil {
		t.Error("a write without room")
	}
	again.disks.space.lowWaterNow.Store(plenty)
	until(t, again, "room", func() bool { return again.NoRoom() == nil && again.lead.leading() })
	must(t, again, tagChange(newID(), "three"))
}

// TestAdmit: what no command is may use what is left of the reserve; a follower
// takes no commands while its changes.db may not be written; entries that come in
// the place of deleted ones are stored in any case.
func TestAdmit(t *testing.T) {
	n := one(t, nil)
	leaderOf(t, []*node{n})
	cause := fmt.Errorf("%w: a test", ErrNoRoom)
	command, barrier := []*raft.Log{{Type: raft.LogCommand}}, []*raft.Log{{Type: raft.LogBarrier}}
	n.halt(t) // no goroutine measures any more
	n.raft.Store(nil)
	for _, test := range []struct {
		name             string
		log, file, last  bool
		command, barrier bool
	}{
		{"room", false, false, false, true, true},
		{"log", true, false, false, false, true},
		{"file", false, true, false, false, true},
		{"least", true, true, true, false, false},
	} {
		for _, set := range []struct {
			on bool
			p  interface{ Store(*error) }
		}{{test.log, &n.disks.space.log}, {test.file, &n.disks.space.file}, {test.last, &n.disks.space.last}} {
			set.p.Store(nil)
			if set.on {
				set.p.Store(&cause)
			}
		}
		if got := n.disks.admit(command) == nil; got != test.command {
			t.Errorf("%s: a command is taken: %v", test.name, got)
		}
		if got := n.disks.admit(barrier) == nil; got != test.barrier {
			t.Errorf("%s: a barrier is taken: %v", test.name, got)
		}
	}
}

// TestLowWater: the default, and that a bound is left with a quarter more only.
func TestLowWater(t *testing.T) {
	var c Config
	if got := c.lowWater(1 << 40); got != 1<<30 {
		t.Errorf("low water of a large disk: %d", got)
	}
	if got := c.lowWater(1000); got != 100 {
		t.Errorf("low water of a small disk: %d", got)
	}
	s := newStore(Config{Logger: quietLogger(), Now: time.Now, DiskLowWater: 1000})
	for _, step := range []struct {
		free, inFile, waiting int64
		low, full             bool
	}{
		{1000, 0, 0, false, false},
		{999, 0, 0, true, false},
		{1249, 0, 0, true, false},
		{1250, 0, 0, false, false},
		{900, 200, 0, false, false},
		{900, 200, 150, true, false},
		{249, 5000, 0, true, true},
		{312, 5000, 0, false, false},
	} {
		s.disks.judgeSpace(step.free, 1<<40, step.inFile, 0, step.waiting)
		if r := s.Room(); r.Low != step.low || r.Full != step.full {
			t.Errorf("%d free, %d in the file, %d waiting: %+v", step.free, step.inFile, step.waiting, r)
		}
	}
}
