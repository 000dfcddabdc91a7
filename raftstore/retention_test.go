package raftstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/command"
)

func quietLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

func countCheckpoints(t testing.TB, s *Store) (n int) {
	t.Helper()
	err := s.files.View(func(tx *bbolt.Tx) error {
		whole, _ := changesdb.Checkpoints(tx)
		n = len(whole)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// firstRow returns the seq of the first event row.
func firstRow(t testing.TB, s *Store) (first log.Seq) {
	t.Helper()
	err := s.files.View(func(tx *bbolt.Tx) error {
		h, _, err := changesdb.ReadMeta(tx)
		first = changesdb.FirstEvent(tx, &h)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return first
}

func upkeeping(c *Config) {
	c.UpkeepEvery, c.CheckpointEvents, c.CompareEvery = 20*time.Millisecond, 20, 50*time.Millisecond
	c.RingEntries, c.RingBytes = 16, 1
}

// churn makes, changes and deletes tags, so that few objects have a long log.
func churn(t testing.TB, n *node, count int) {
	t.Helper()
	churnFrom(t, n, 0, count)
}

func churnFrom(t testing.TB, n *node, first, count int) {
	t.Helper()
	for i := first; i < first+count; i++ {
		name := fmt.Sprintf("c%d", i%7)
		op := tagOp(name)
		switch (i / 7) % 3 {
		case 1:
			op.Action, op.Set = log.Update, []string{"mtu"}
			op.Object.(*log.NICTag).MTU = uint32(1500 + i)
		case 2:
			op = log.Op{Action: log.Delete, Kind: log.KindNICTag, ID: name}
		}
		if op.Action == log.Update {
			op.ID = name
		}
		must(t, n, &log.Change{ID: newID(), Actor: "test", Ops: []log.Op{op}})
	}
}

// TestFloorMoves: the floor moves on each server in the same way, what is below it is
// refused with the typed error, deleted, and does not come back; the state is untouched,
// and every state from the floor on can be had.
func TestFloorMoves(t *testing.T) {
	t.Parallel()
	nodes := three(t, upkeeping)
	leader := leaderOf(t, nodes)
	churn(t, leader, 60)
	for _, n := range nodes { // below the floor: rows are deleted up to one, and upkeep may come late
		until(t, n, "a checkpoint", func() bool { return countCheckpoints(t, n.Store) > 0 })
	}
	churnFrom(t, leader, 60, 90)
	if _, err := leader.Consistent(patience(t)); err != nil { // it may lead no longer
		t.Fatal(err)
	}
	at30 := cursorAt(t, leader.Store, 30)
	states := dumps(t, leader.Store)
	until(t, leader, "all members are heard", func() bool {
		return leader.SetRetention(patience(t), changesdb.Retention{Events: 60, Bytes: 1 << 28}) == nil
	})
	for _, n := range nodes {
		until(t, n, "the floor moved", func() bool { return n.Floor() >= 80 && firstRow(t, n.Store) > 1 })
	}
	churnFrom(t, leader, 150, 63)
	for _, n := range nodes {
		until(t, n, "rows are deleted", func() bool { return n.Head().Seq == 213 && firstRow(t, n.Store) > 100 })
		floor := n.Floor()
		if _, err := n.Entries(floor-1, 10); !errors.Is(err, log.ErrCompacted) {
			t.Errorf("entries below the floor: %v, want ErrCompacted", err)
		}
		if err := n.CheckCursor(at30); !errors.Is(err, log.ErrCompacted) {
			t.Errorf("cursor below the floor: %v, want ErrCompacted", err)
		}
		if err := n.CheckCursor(log.Cursor{}); !errors.Is(err, log.ErrCompacted) {
			t.Errorf("cursor of nothing: %v, want ErrCompacted", err)
		}
		if got, err := n.Entries(floor, 10); err != nil || got[0].Seq != floor+1 {
			t.Errorf("entries after the floor: %v", err)
		}
		checkFloorCursor(t, n.Store)
		if _, err := n.Past().StateAt(patience(t), floor-1); !errors.Is(err, log.ErrCompacted) {
			t.Errorf("state below the floor: %v, want ErrCompacted", err)
		}
		for seq := floor; seq <= 150; seq++ {
			checkStateAt(t, n.Store, seq, states[seq])
		}
	}
	for i := range nodes {
		head, floor := nodes[i].Head(), nodes[i].Floor()
		nodes[i].halt(t)
		nodes[i] = nodes[i].again(t)
		if got := nodes[i].Head(); got != head {
			t.Errorf("head %s after a restart, want %s", got, head)
		}
		if got := nodes[i].Floor(); got < floor {
			t.Errorf("floor %d after a restart, want %d", got, floor)
		}
		until(t, nodes[i], "ready", func() bool { return nodes[i].Ready() == nil })
	}
	if st := nodes[0].Status(); st.Retention.Events != 60 {
		t.Errorf("retention %+v", st.Retention)
	}
}

func cursorAt(t testing.TB, s *Store, seq log.Seq) log.Cursor {
	t.Helper()
	entries, err := s.Entries(seq-1, 1)
	if err != nil {
		t.Fatal(err)
	}
	return log.Cursor{Cluster: s.Head().Cluster, Seq: seq, Chain: entries[0].Hash.Prefix()}
}

// checkFloorCursor: at the floor itself the hash that was kept decides (SAFETY F4).
func checkFloorCursor(t testing.TB, s *Store) {
	t.Helper()
	s.mu.RLock()
	h := s.head
	s.mu.RUnlock()
	c := log.Cursor{Cluster: h.Cluster, Seq: h.Floor, Chain: h.FloorHash.Prefix()}
	if err := s.CheckCursor(c); err != nil {
		t.Errorf("cursor at the floor: %v", err)
	}
	c.Chain[0] ^= 1
	if err := s.CheckCursor(c); !errors.Is(err, log.ErrOtherLog) {
		t.Errorf("cursor at the floor of another log: %v, want ErrOtherLog", err)
	}
}

// dumps folds the log and keeps the dump of each state, by seq.
func dumps(t testing.TB, s *Store) map[log.Seq]string {
	t.Helper()
	state, out := projections.NewState(), make(map[log.Seq]string)
	for _, e := range all(t, s) {
		event, err := e.Event()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := state.Apply(e.Seq, event); err != nil {
			t.Fatal(err)
		}
		out[e.Seq] = string(state.Dump())
	}
	return out
}

func checkStateAt(t testing.TB, s *Store, seq log.Seq, want string) {
	t.Helper()
	state, err := s.Past().StateAt(patience(t), seq)
	if errors.Is(err, log.ErrCompacted) {
		return // the floor moved on meanwhile
	}
	if err != nil {
		t.Fatalf("state at %d: %v", seq, err)
	}
	if got := string(state.Dump()); got != want {
		t.Fatalf("state at %d:\ngot  %s\nwant %s", seq, got, want)
	}
}

// TestReaderMeetsCompaction: a reader that follows while the floor moves gets
// every entry or the typed error, never a gap, and deletes are not lost to it
// (etcd#18089).
func TestReaderMeetsCompaction(t *testing.T) {
	t.Parallel()
	n := one(t, upkeeping)
	until(t, n, "retention", func() bool {
		return n.SetRetention(patience(t), changesdb.Retention{Events: 10, Bytes: 1 << 28}) == nil
	})
	const total = 400
	written := make(chan struct{})
	go func() {
		defer close(written)
		churn(t, n, total)
	}()
	compacted, state := 0, projections.NewState()
	for at := log.Seq(0); at < total; {
		changed := n.Changed()
		entries, err := n.Entries(at, 3)
		if errors.Is(err, log.ErrCompacted) {
			compacted++
			n.View(func(v View) { state, at = cloneState(t, v.State), v.Head.Seq })
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			select {
			case <-changed:
			case <-patience(t).Done():
				t.Fatal("nothing comes")
			}
		}
		for _, e := range entries {
			event, err := e.Event()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := state.Apply(e.Seq, event); err != nil {
				t.Fatalf("an entry was lost: %v", err)
			}
			at = e.Seq
		}
		_ = n.pause(context.Background(), nil) // a slow reader
	}
	<-written
	n.View(func(v View) {
		if got, want := string(state.Dump()), string(v.State.Dump()); got != want {
			t.Errorf("the reader has\n%s\nwant\n%s", got, want)
		}
	})
	t.Logf("compacted %d times", compacted)
}

func cloneState(t testing.TB, from *projections.State) *projections.State {
	t.Helper()
	to := projections.NewState()
	for r := range from.List(log.KindNICTag) {
		if err := to.Load(r); err != nil {
			t.Fatal(err)
		}
	}
	to.SetTime(from.Time())
	return to
}

// TestWantedFloor: by age and by number, whichever keeps more; the cap wins.
func TestWantedFloor(t *testing.T) {
	t.Parallel()
	n := one(t, func(c *Config) { c.UpkeepEvery = time.Hour })
	for i := range 50 {
		c := tagChange(newID(), fmt.Sprintf("a%d", i))
		c.Ops = append(c.Ops, tagOp(fmt.Sprintf("b%d", i))) // two events each
		must(t, n, c)
	}
	if err := n.persister.Flush(); err != nil {
		t.Fatal(err)
	}
	now := log.TimeOf(time.Now())
	tests := []struct {
		name string
		keep changesdb.Retention
		now  log.Time
		want log.Seq
	}{
		{"all young", changesdb.Retention{Age: time.Hour, Events: 10, Bytes: 1 << 40}, now, 0},
		{"all old", changesdb.Retention{Age: time.Hour, Events: 10, Bytes: 1 << 40}, now + log.Time(2*time.Hour), 90},
		{"a change is not split", changesdb.Retention{Events: 11, Bytes: 1 << 40}, now + 1, 88},
		{"fewer than the number", changesdb.Retention{Events: 1000, Bytes: 1 << 40}, now + log.Time(2*time.Hour), 0},
		{"the cap wins", changesdb.Retention{Age: time.Hour, Events: 1000, Bytes: 1}, now, 100},
	}
	for _, test := range tests {
		var got changesdb.Slot
		err := dbOf(n.files).Update(func(tx *bbolt.Tx) error {
			h, _, err := changesdb.ReadMeta(tx)
			if err != nil {
				return err
			}
			h.Retention = test.keep
			if err := changesdb.PutHead(tx.Bucket(changesdb.BucketMeta), &h); err != nil {
				return err
			}
			got, err = changesdb.WantedFloor(tx, nil, test.now)
			return err
		})
		if err != nil || got.Seq != test.want {
			t.Errorf("%s: floor %d, %v, want %d", test.name, got.Seq, err, test.want)
		}
	}
	if err := n.SetRetention(patience(t), changesdb.Retention{}); err == nil {
		t.Error("a retention of nothing was taken")
	}
	floor := n.Floor()
	p, err := n.PlanRetention(&changesdb.Retention{Events: 11, Bytes: 1 << 24})
	if err != nil || p.Head != 100 || p.Floor != floor || p.Next != 88 || p.NextTime == 0 || p.Oldest == 0 || p.Bytes == 0 {
		t.Errorf("plan %+v, %v: want the floor at 88", p, err)
	}
	if n.Floor() != floor {
		t.Error("a plan moved the floor")
	}
	if _, err := n.PlanRetention(&changesdb.Retention{}); err == nil {
		t.Error("a plan of nothing was made")
	}
}

// TestUpkeepBroken: upkeep that is interrupted at any transaction leaves a file
// that loads, and goes on where it was.
func TestUpkeepBroken(t *testing.T) {
	t.Parallel()
	n := one(t, func(c *Config) {
		c.UpkeepEvery = time.Hour
		c.CheckpointEvents = 10
		c.RingEntries, c.RingBytes = 16, 1
	})
	churn(t, n, 100)
	head := n.Head()
	if err := n.persister.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := n.keeper.upkeep.Maintain(patience(t)); err != nil {
		t.Fatal(err)
	}
	churnFrom(t, n, 100, 40) // so many that another checkpoint is due
	states := dumps(t, n.Store)
	entry := n.Store
	last, err := entry.Entries(head.Seq-1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.raft.Load().Apply(command.EncodeFloor(head.Seq, last[0].Hash), enqueueTimeout).Error(); err != nil {
		t.Fatal(err)
	}
	n.halt(t)
	stop := errors.New("stopped here")
	for step := range 12 {
		s, err := Open(n.cfg)
		if err != nil {
			t.Fatal(err)
		}
		left := step % 4
		s.persister.SetFault(func(string) error {
			if left--; left < 0 {
				return stop
			}
			return nil
		})
		if err := s.keeper.upkeep.Maintain(context.Background()); err != nil && !errors.Is(err, stop) {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s, err = Open(n.cfg)
		if err != nil {
			t.Fatalf("after a stop at step %d: %v", left, err)
		}
		if s.Head().Seq != 140 || s.Floor() != 100 {
			t.Errorf("head %s, floor %d", s.Head(), s.Floor())
		}
		for seq := s.Floor(); seq <= 140; seq++ {
			checkStateAt(t, s, seq, states[seq])
		}
		if step == 11 && countCheckpoints(t, s) != 2 {
			t.Errorf("%d checkpoints, want those at 100 and 140", countCheckpoints(t, s))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEventsStayForTheirCheckpoint: the floor is ahead of the newest checkpoint below it.
// The events between stay in the file, hidden: the states from the floor on follow from
// them (etcd#18089). A checkpoint that lacks an object is found when it is read.
func TestEventsStayForTheirCheckpoint(t *testing.T) {
	t.Parallel()
	n := one(t, func(c *Config) {
		c.UpkeepEvery = time.Hour // it is done here
		c.CheckpointEvents = 10
		c.RingEntries, c.RingBytes = 16, 1
	})
	maintain := func() {
		t.Helper()
		if err := n.persister.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := n.keeper.upkeep.Maintain(patience(t)); err != nil {
			t.Fatal(err)
		}
	}
	churn(t, n, 40)
	maintain()
	churnFrom(t, n, 40, 5)
	states := dumps(t, n.Store)
	const floor = 43
	at, err := n.Entries(floor-1, 1)
	if err == nil {
		err = n.raft.Load().Apply(command.EncodeFloor(floor, at[0].Hash), enqueueTimeout).Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	maintain()
	if first := firstRow(t, n.Store); first != 41 || countCheckpoints(t, n.Store) != 1 || n.Floor() != floor {
		t.Errorf("%d checkpoints, the floor is at %d, and the first event is %d; want one at 40, 43 and 41", countCheckpoints(t, n.Store), n.Floor(), first)
	}
	for seq := log.Seq(floor); seq <= 45; seq++ {
		checkStateAt(t, n.Store, seq, states[seq])
	}
	err = dbOf(n.files).Update(func(tx *bbolt.Tx) error {
		cursor := tx.Bucket(changesdb.BucketCheckpoints).Bucket(changesdb.SeqKey(40)).Bucket([]byte(log.KindNICTag.String())).Cursor()
		cursor.First()
		return cursor.Delete()
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Past().StateAt(patience(t), 44); !errors.Is(err, log.ErrCorrupt) {
		t.Errorf("the state of a checkpoint that lacks an object: %v, want ErrCorrupt", err)
	}
}

// A late entry does not move the floor back: what is below it may be deleted already.
func TestFloorNeverGoesBack(t *testing.T) {
	t.Parallel()
	s := bareStore(t, t.TempDir())
	defer s.close()
	s.found(log.FeatureVersion)
	hashes := map[log.Seq]log.Hash{}
	for i := range 5 {
		c := tagChange(newID(), fmt.Sprintf("t%d", i))
		c.Time = log.TimeOf(time.Now())
		s.batch(encodedChange(t, c))
		hashes[s.applier.head.Seq] = s.applier.head.Hash
	}
	for _, step := range []struct{ to, want log.Seq }{{3, 3}, {2, 3}, {1, 3}, {3, 3}, {4, 4}} {
		if err, ok := s.entry(s.applier.head.Applied+1, command.EncodeFloor(step.to, hashes[step.to])).(error); ok {
			t.Fatal(err)
		}
		if h := s.applier.head; h.Floor != step.want || h.FloorHash != hashes[step.want] {
			t.Errorf("after an entry that moves the floor to %d it is at %d with hash %s, want %d", step.to, h.Floor, h.FloorHash, step.want)
		}
	}
}
