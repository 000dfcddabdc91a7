package raftstore

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/hashicorp/raft"

	"rutter/raftstore/internal/raftlog"
)

// TestForeignTail: a server whose log goes on otherwise than the others', and beyond their
// snapshot, ends once with an error that says so, and comes back. With raft alone it gets
// the snapshot again and again.
func TestForeignTail(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	nodes := three(t, func(c *Config) { c.TrailingLogs = 4 })
	leader := leaderOf(t, nodes)
	must(t, leader, tagChange(newID(), "first"))
	away := others(nodes, leader)[0]
	waitFor(t, away, 1)
	away.halt(t)
	from := extend(t, away.cfg.Dir, 2000)
	made := 0
	until(t, leader, "the log is trimmed", func() bool {
		made++
		must(t, leader, tagChange(newID(), fmt.Sprintf("t%d", made)))
		first, err := leader.raftLog.FirstIndex()
		return err == nil && first > from+8
	})
	back := away.again(t)
	select {
	case err := <-back.ended:
		if !errors.Is(err, raftlog.ErrReplaced) {
			t.Errorf("it ended with %v, want ErrReplaced", err)
		}
	case <-patience(t).Done():
		t.Fatalf("it goes on with %d images installed", back.Status().Restores)
	}
	back.cancel()
	back.cancel = nil
	if err := back.Close(); err != nil {
		t.Error(err)
	}
	back = back.again(t)
	must(t, leader, tagChange(newID(), "after"))
	waitFor(t, back, leader.Head().Seq)
	for i := range nodes {
		if nodes[i] == away {
			nodes[i] = back
		}
	}
	checkSame(t, nodes)
}

// extend adds n entries of a term before all others to a halted server's log, and returns
// the index that was the last.
func extend(t *testing.T, dir string, n uint64) (last uint64) {
	t.Helper()
	l, err := raftlog.Open(raftlog.Options{
		Dir: dir, MapBytes: 1 << 30, Logger: slog.New(slog.DiscardHandler),
		Leads: func() bool { return false }, Changes: func([]byte) bool { return false }, Report: func(err error) { t.Error(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if last, err = l.LastIndex(); err != nil {
		t.Fatal(err)
	}
	var entries []*raft.Log
	for i := range n {
		entries = append(entries, &raft.Log{Index: last + 1 + i, Term: 1, Type: raft.LogNoop})
	}
	if err := errors.Join(l.StoreLogs(entries), l.Close()); err != nil {
		t.Fatal(err)
	}
	return last
}
