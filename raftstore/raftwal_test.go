package raftstore

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"

	"rutter/raftstore/internal/raftlog"
	"rutter/raftstore/internal/raftlog/wal"
	"rutter/raftstore/offline"
)

// TestRaftLogMoves: a server changes from raft.db to raft.wal and back, over and
// over in one process, and loses nothing; what is behind in changes.db comes
// from the log that was moved.
func TestRaftLogMoves(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	for round, kind := range []string{RaftLogWAL, RaftLogWAL, RaftLogBolt, RaftLogWAL} {
		for i := range 40 {
			must(t, n, tagChange(newID(), fmt.Sprintf("r%d_%d", round, i)))
		}
		head := n.Head()
		n.halt(t)
		if c, err := offline.InspectFolder(n.cfg.Dir, nil); err != nil || c.LastIndex == 0 || c.Head != head {
			t.Errorf("inspected before %s: %+v, %v", kind, c, err)
		}
		n.cfg.RaftLog = kind
		n = n.again(t)
		if got := n.Head(); got != head {
			t.Errorf("head %s with %s, want %s", got, kind, head)
		}
		checkFold(t, n.Store)
		if st := n.Status(); st.RaftLog != kind || st.RaftBytes == 0 {
			t.Errorf("status: raft log %s of %d bytes, want %s", st.RaftLog, st.RaftBytes, kind)
		}
		_, err := os.Stat(filepath.Join(n.cfg.Dir, raftlog.WALName))
		if there := err == nil; there != (kind == RaftLogWAL) {
			t.Errorf("%s is there: %t, with %s", raftlog.WALName, there, kind)
		}
	}
	must(t, n, tagChange(newID(), "last"))
	if _, err := Open(Config{ID: "s1", Dir: t.TempDir(), RaftLog: "tape"}); err == nil {
		t.Error("a log that nobody knows was taken")
	}
}

// TestWALCluster: three servers on raft-wal, one of them brought up by a
// snapshot: its log has a gap, which raft-wal does not take.
func TestWALCluster(t *testing.T) {
	t.Parallel()
	nodes := three(t, func(c *Config) { c.RaftLog, c.TrailingLogs = RaftLogWAL, 4 })
	leader := leaderOf(t, nodes)
	must(t, leader, tagChange(newID(), "first"))
	away := others(nodes, leader)[0]
	waitFor(t, away, 1)
	away.halt(t)
	from := away.appliedIndex()
	made := 0
	until(t, leader, "the log is trimmed", func() bool {
		made++
		must(t, leader, tagChange(newID(), fmt.Sprintf("t%d", made)))
		first, err := leader.raftLog.FirstIndex()
		return err == nil && first > from+8 // more than was on its way
	})
	back := away.again(t)
	for i := range nodes {
		if nodes[i] == away {
			nodes[i] = back
		}
	}
	waitFor(t, back, leader.Head().Seq)
	must(t, leader, tagChange(newID(), "after"))
	checkSame(t, nodes)
	if back.Status().Restores == 0 {
		t.Error("no snapshot was restored, the test wants one")
	}
	checkRestart(t, nodes, back)
}

// TestMoveInterrupted: what an unfinished move left is not taken for the log.
func TestMoveInterrupted(t *testing.T) {
	t.Parallel()
	n := one(t, func(c *Config) { c.RaftLog = RaftLogBolt })
	for i := range 40 {
		must(t, n, tagChange(newID(), fmt.Sprintf("t%d", i)))
	}
	head := n.Head()
	n.halt(t)
	w, err := wal.Open(filepath.Join(n.cfg.Dir, raftlog.WALName), quietLogger())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.StoreLog(&raft.Log{Index: 7, Term: 99, Type: raft.LogCommand, Data: []byte("half")}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	n.cfg.RaftLog = RaftLogWAL
	n = n.again(t)
	if got := n.Head(); got != head {
		t.Errorf("head %s, want %s", got, head)
	}
	must(t, n, tagChange(newID(), "after"))
	checkFold(t, n.Store)
}

// TestRaftLogStays: without a wish a new server has raft.wal, one that has entries in raft.db
// keeps them there, and one that was moved stays moved.
func TestRaftLogStays(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	for round, c := range []struct{ wish, is string }{
		{"", RaftLogWAL}, {RaftLogBolt, RaftLogBolt}, {"", RaftLogBolt}, {RaftLogWAL, RaftLogWAL}, {"", RaftLogWAL},
	} {
		if round > 0 {
			n.halt(t)
			n.cfg.RaftLog = c.wish
			n = n.again(t)
		}
		must(t, n, tagChange(newID(), fmt.Sprintf("r%d", round)))
		if st := n.Status(); st.RaftLog != c.is {
			t.Errorf("start %d with %q: %s, want %s", round+1, c.wish, st.RaftLog, c.is)
		}
	}
	checkFold(t, n.Store)
	old := one(t, func(c *Config) { c.RaftLog = RaftLogBolt })
	must(t, old, tagChange(newID(), "first"))
	old.halt(t)
	old.cfg.RaftLog = "" // never said, as in programs before
	if old = old.again(t); old.Status().RaftLog != RaftLogBolt {
		t.Errorf("a log in raft.db is %s after a start", old.Status().RaftLog)
	}
}

// TestRaftLogMovesUnderLoad: an operator changes every server's log while clients write, one
// server after the other, to raft.db and back. No acknowledged change is lost or doubled.
func TestRaftLogMovesUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	nodes := three(t, nil)
	leaderOf(t, nodes)
	var running [3]atomic.Pointer[node]
	for i, n := range nodes {
		running[i].Store(n)
	}
	stop := make(chan struct{})
	acked := writers(t, 4, stop, func(i int) *node { return running[i%3].Load() })
	for _, kind := range []string{RaftLogBolt, RaftLogWAL} {
		for i, n := range nodes {
			waitFor(t, n, n.Head().Seq+10) // the moves alone take less than a second
			n.halt(t)
			n.cfg.RaftLog = kind
			nodes[i] = n.again(t)
			running[i].Store(nodes[i])
			waitFor(t, nodes[i], leaderOf(t, nodes).Head().Seq)
			if st := nodes[i].Status(); st.RaftLog != kind {
				t.Errorf("%s: the log is %s, want %s", n.cfg.ID, st.RaftLog, kind)
			}
		}
	}
	close(stop)
	written := acked()
	if len(written) < 50 {
		t.Errorf("%d changes were written meanwhile", len(written))
	}
	checkSame(t, nodes)
	checkAcked(t, nodes[0].Store, written)
}
