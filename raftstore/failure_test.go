package raftstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/raftstore/internal/admission"
	"rutter/raftstore/internal/command"
	"rutter/raftstore/internal/raftlog"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	dir, quiet := t.TempDir(), slog.New(slog.DiscardHandler)
	member := Member{ID: "s1", Address: "127.0.0.1:1"}
	tests := []struct {
		name string
		cfg  Config
		want string
	}{
		{"no id", Config{Dir: dir}, "no ID"},
		{"no folder", Config{ID: "s1"}, "data folder"},
		{"two ways", Config{ID: "s1", Dir: dir, Bootstrap: true, Join: []string{"x:1"}}, "exclude each other"},
		{"not a member", Config{ID: "s2", Dir: dir, InitialMembers: []Member{member}}, "not among the initial members"},
		{"member twice", Config{ID: "s1", Dir: dir, InitialMembers: []Member{member, {ID: "s2", Address: member.Address}}}, "twice"},
		{"member without address", Config{ID: "s1", Dir: dir, InitialMembers: []Member{{ID: "s1"}}}, "an id and an address"},
		{"lease over heartbeat", Config{ID: "s1", Dir: dir, LeaderLease: time.Minute}, "lease"},
		{"not dialable", Config{ID: "s1", Dir: dir, Logger: quiet, Listen: "0.0.0.0:0", MapBytes: 1 << 24}, "Advertise"},
		{"other address", Config{ID: "s1", Dir: dir, Logger: quiet, Listen: "127.0.0.1:0", InitialMembers: []Member{member}, MapBytes: 1 << 24}, "make them agree"},
	}
	for _, test := range tests {
		s, err := Open(test.cfg)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q in it", test.name, err, test.want)
		}
	}
}

func TestFolderInUse(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	if s, err := Open(testConfig(t, "s1", n.cfg.Dir)); err == nil || !strings.Contains(err.Error(), "another process") {
		if err == nil {
			s.Close()
		}
		t.Errorf("%v, want it to name another process", err)
	}
}

// TestRaftLogLost: changes.db beyond raft's log means that promises were lost.
func TestRaftLogLost(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ kind, lost, says string }{
		{RaftLogBolt, raftlog.FileName, "raft.db or raft.wal was lost"},
		{RaftLogWAL, raftlog.FileName, "raft.db was lost"},
		{RaftLogWAL, raftlog.WALName, "raft.db or raft.wal was lost"},
	} {
		t.Run(test.kind+" "+test.lost, func(t *testing.T) {
			t.Parallel()
			n := one(t, func(c *Config) { c.RaftLog = test.kind })
			must(t, n, tagChange(newID(), "a"))
			n.halt(t)
			lost, aside := filepath.Join(n.cfg.Dir, test.lost), filepath.Join(t.TempDir(), "aside")
			if err := os.Rename(lost, aside); err != nil {
				t.Fatal(err)
			}
			for range 2 { // it says the same at each start
				s, err := Open(n.cfg)
				if err == nil {
					s.Close()
				}
				if err == nil || !strings.Contains(err.Error(), test.says) {
					t.Errorf("%v, want it to say %q", err, test.says)
				}
			}
			// Nothing else was lost by it: the server goes on when it is back.
			if err := errors.Join(os.RemoveAll(lost), os.Rename(aside, lost)); err != nil {
				t.Fatal(err)
			}
			must(t, n.again(t), tagChange(newID(), "b"))
		})
	}
}

// stopsWith waits for a server to stop by itself.
func (n *node) stopsWith(t *testing.T, want error) {
	t.Helper()
	select {
	case err := <-n.ended:
		if !errors.Is(err, want) {
			t.Errorf("run: %v, want %v", err, want)
		}
	case <-patience(t).Done():
		t.Fatal("still running")
	}
	n.cancel()
	n.cancel = nil
	if _, err := n.Propose(context.Background(), tagChange(newID(), "late")); !errors.Is(err, ErrStopped) {
		t.Errorf("propose after the end: %v, want ErrStopped", err)
	}
	if err := n.Ready(); !errors.Is(err, ErrStopped) {
		t.Errorf("ready after the end: %v, want ErrStopped", err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// TestUnknownCommand: an entry of a newer program stops the server, is not
// skipped, and is still there for the newer one.
func TestUnknownCommand(t *testing.T) {
	t.Parallel()
	for _, data := range [][]byte{{99}, {command.Batch, 99}, {command.Batch}, {command.Genesis, 1}} {
		n := one(t, nil)
		must(t, n, tagChange(newID(), "before"))
		before := n.Head()
		if err := n.raft.Load().Apply(data, enqueueTimeout).Error(); err != nil {
			t.Fatal(err)
		}
		want := log.ErrFormat
		if len(data) == 1 && data[0] == command.Batch || data[0] == command.Genesis {
			want = log.ErrCorrupt
		}
		n.stopsWith(t, want)
		s, err := Open(n.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if s.Head() != before {
			t.Errorf("head %s, want %s", s.Head(), before)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestDiskFails closes a file under the running server: it stops in order, says
// which file, and nothing acknowledged is lost.
func TestDiskFails(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		damage func(n *node) error
	}{
		{"raft.db", func(n *node) error { return n.raftLog.Close() }},
		{"changes.db", func(n *node) error { return dbOf(n.files).Close() }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := one(t, nil)
			first := must(t, n, tagChange(newID(), "before"))
			if err := test.damage(n); err != nil {
				t.Fatal(err)
			}
			result, err := n.Propose(patience(t), tagChange(newID(), "after"))
			acked := map[string]log.Result{"before": first}
			if err == nil {
				acked["after"] = result // changes.db is off the path of acknowledgement
			} else if !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrStopped) {
				t.Errorf("propose: %v, want ErrUnknown or ErrStopped", err)
			}
			n.stopsWith(t, ErrDisk)
			n = launch(t, n.cfg)
			if _, err := n.Consistent(patience(t)); err != nil {
				t.Fatal(err)
			}
			checkAcked(t, n.Store, acked)
			checkFold(t, n.Store)
		})
	}
}

// TestTermNotSaved: raft would panic if it could not save a term; it stops instead.
func TestTermNotSaved(t *testing.T) {
	t.Parallel()
	nodes := three(t, nil)
	leader := leaderOf(t, nodes)
	var victim *node
	for _, n := range nodes {
		if n != leader {
			victim = n
		}
	}
	if err := victim.raftLog.Close(); err != nil {
		t.Fatal(err)
	}
	if err := leader.members.Transfer(patience(t), ""); err != nil {
		t.Log("transfer:", err)
	}
	victim.stopsWith(t, ErrDisk)
	must(t, leader, tagChange(newID(), "after"))
}

func TestOverload(t *testing.T) {
	t.Parallel()
	n := one(t, func(c *Config) { c.MaxLagEvents, c.PersistDelay = 3, time.Hour })
	answers := make(chan struct{})
	n.persister.SetFault(func(string) error { <-answers; return nil }) // a disk that does not answer
	for i := 0; ; i++ {
		_, err := n.Propose(patience(t), tagChange(newID(), fmt.Sprintf("t%d", i)))
		if errors.Is(err, ErrOverloaded) {
			break
		}
		if err != nil || i > 100 {
			t.Fatalf("change %d: %v, want ErrOverloaded", i, err)
		}
	}
	close(answers)
	if err := n.persister.Flush(); err != nil {
		t.Fatal(err)
	}
	must(t, n, tagChange(newID(), "afterwards"))
}

// TestNotWritten: only three errors of raft mean that nothing was written.
func TestNotWritten(t *testing.T) {
	t.Parallel()
	for _, err := range []error{raft.ErrNotLeader, raft.ErrEnqueueTimeout, raft.ErrLeadershipTransferInProgress} {
		if got := notWritten(err); !errors.Is(got, errNotLeader) || errors.Is(got, ErrUnknown) {
			t.Errorf("%v: %v, want not written", err, got)
		}
	}
	for _, err := range []error{raft.ErrLeadershipLost, raft.ErrRaftShutdown, raft.ErrAbortedByRestore, io.ErrUnexpectedEOF} {
		if got := notWritten(err); !errors.Is(got, ErrUnknown) || errors.Is(got, errNotLeader) {
			t.Errorf("%v: %v, want unknown", err, got)
		}
	}
}

// TestBatchEntry: what the proposer writes is what the FSM splits.
func TestBatchEntry(t *testing.T) {
	t.Parallel()
	var batch []*admission.Proposal
	for i := range 20 {
		batch = append(batch, &admission.Proposal{Bytes: bytes.Repeat([]byte{byte(i)}, i*100)})
		entry := batchEntry(batch)
		if entry[0] != command.Batch || cap(entry) != len(entry) {
			t.Fatalf("entry of %d changes: command %d, %d bytes of %d", len(batch), entry[0], len(entry), cap(entry))
		}
		changes, err := log.SplitBatch(entry[1:])
		if err != nil || len(changes) != len(batch) {
			t.Fatalf("%d changes of %d, %v", len(changes), len(batch), err)
		}
		for j, c := range changes {
			if !bytes.Equal(c, batch[j].Bytes) {
				t.Fatalf("change %d differs", j)
			}
		}
	}
}
