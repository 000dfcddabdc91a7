package raftlog

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// follower is a raft instance with a Log of ours, to which a test sends what a leader would.
type follower struct {
	log     *Log
	raft    *raft.Raft
	leader  *raft.InmemTransport
	address raft.ServerAddress
	applied []uint64      // read after raft has ended
	last    atomic.Uint64 // of applied; raft's own index is ahead of it
	index   uint64        // of the image that is installed
	term    uint64
	failure error // of Restored
}

func (f *follower) Apply(entry *raft.Log) any {
	f.applied = append(f.applied, entry.Index)
	f.last.Store(entry.Index)
	return nil
}

func (f *follower) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.New("not here") }

func (f *follower) Restore(from io.ReadCloser) error {
	f.failure = f.log.Restored(f.index, f.term)
	return errors.Join(f.failure, from.Close())
}

func openedLog(t *testing.T, dir, kind string) *Log {
	t.Helper()
	l, err := Open(Options{
		Dir: dir, Kind: kind, MapBytes: 1 << 20, Logger: slog.New(slog.DiscardHandler),
		Leads: func() bool { return false }, Changes: func([]byte) bool { return true },
		Report: func(err error) { t.Error(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newFollower(t *testing.T, kind string) *follower {
	t.Helper()
	f := &follower{log: openedLog(t, t.TempDir(), kind)}
	address, own := raft.NewInmemTransport("follower")
	_, leader := raft.NewInmemTransport("leader")
	f.address, f.leader = address, leader
	leader.Connect(address, own)
	config := raft.DefaultConfig()
	config.LocalID, config.TrailingLogs = "follower", 2
	config.HeartbeatTimeout, config.ElectionTimeout = time.Hour, time.Hour
	config.LogOutput = io.Discard
	var err error
	if f.raft, err = raft.NewRaft(config, f, f.log, f.log, raft.NewInmemSnapshotStore(), own); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *follower) end(t *testing.T) {
	t.Helper()
	if err := errors.Join(f.raft.Shutdown().Error(), f.log.Close()); err != nil {
		t.Fatal(err)
	}
}

func header() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("leader"), Addr: []byte("leader")}
}

// appends sends the entries from first to last, after one of prevTerm, and says that all up
// to commit are committed.
func (f *follower) appends(t *testing.T, term, prevTerm, first, last, commit uint64) bool {
	t.Helper()
	request := &raft.AppendEntriesRequest{RPCHeader: header(), Term: term, PrevLogEntry: first - 1, PrevLogTerm: prevTerm, LeaderCommitIndex: commit}
	for i := first; i <= last; i++ {
		request.Entries = append(request.Entries, &raft.Log{Index: i, Term: term, Type: raft.LogCommand, Data: []byte{byte(i)}})
	}
	var answer raft.AppendEntriesResponse
	if err := f.leader.AppendEntries("leader", f.address, request, &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Success
}

// installs sends a snapshot that ends with the entry index of term.
func (f *follower) installs(t *testing.T, index, term uint64) error {
	t.Helper()
	f.index, f.term = index, term
	image := []byte("image")
	members := raft.Configuration{Servers: []raft.Server{{ID: "follower", Address: f.address}, {ID: "leader", Address: "leader"}}}
	request := &raft.InstallSnapshotRequest{
		RPCHeader: header(), SnapshotVersion: 1, Term: term, LastLogIndex: index, LastLogTerm: term,
		Configuration: raft.EncodeConfiguration(members), ConfigurationIndex: 1, Size: int64(len(image)),
	}
	return f.leader.InstallSnapshot("leader", f.address, request, new(raft.InstallSnapshotResponse), bytes.NewReader(image))
}

// TestSnapshotBehindLog: entries that follow an installed snapshot, which this server has
// acknowledged, stay in its log, and the leader goes on after either end.
func TestSnapshotBehindLog(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{Bolt, WAL} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newFollower(t, kind)
			if !f.appends(t, 2, 0, 1, 30, 5) {
				t.Fatal("the first entries were refused")
			}
			if err := f.installs(t, 20, 2); err != nil {
				t.Fatal(err)
			}
			for i := uint64(20); i <= 30; i++ {
				var entry raft.Log
				if err := f.log.GetLog(i, &entry); err != nil || entry.Term != 2 {
					t.Errorf("entry %d, which was acknowledged: term %d, %v", i, entry.Term, err)
				}
			}
			if !f.appends(t, 2, 2, 31, 31, 25) || !f.appends(t, 2, 2, 21, 32, 32) {
				t.Error("the leader cannot go on after its snapshot")
			}
			until(t, "all entries are applied", func() bool { return f.last.Load() == 32 })
			f.end(t)
			if n := len(f.applied); n != 17 || f.applied[n-1] != 32 || f.applied[5] != 21 {
				t.Errorf("applied %d, want 1 to 5 and 21 to 32", f.applied)
			}
		})
	}
}

// TestSnapshotAheadOfLog: entries that follow a snapshot are taken after a gap, and the log
// is read again with its end.
func TestSnapshotAheadOfLog(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{Bolt, WAL} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newFollower(t, kind)
			if !f.appends(t, 2, 0, 1, 10, 5) {
				t.Fatal("the first entries were refused")
			}
			if err := f.installs(t, 100, 2); err != nil {
				t.Fatal(err)
			}
			if !f.appends(t, 2, 2, 101, 105, 105) {
				t.Error("the leader cannot go on after its snapshot")
			}
			until(t, "all entries are applied", func() bool { return f.last.Load() == 105 })
			f.end(t)
			again := openedLog(t, f.log.opts.Dir, kind)
			if err := again.Verify(100); err != nil {
				t.Error(err)
			}
			if last, err := again.LastIndex(); err != nil || last != 105 {
				t.Errorf("the log ends at %d, %v", last, err)
			}
			if err := again.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLogAgainstSnapshot: a log that contradicts a snapshot is removed, and the error says
// that the server must start again. Raft then takes the entries that follow.
func TestLogAgainstSnapshot(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{Bolt, WAL} {
		for name, last := range map[string]uint64{"longer": 30, "as long": 20} {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				f := newFollower(t, kind)
				if !f.appends(t, 2, 0, 1, last, 5) {
					t.Fatal("the first entries were refused")
				}
				if err := f.installs(t, 20, 3); err == nil || !strings.Contains(err.Error(), ErrReplaced.Error()) {
					t.Errorf("the leader gets %v, want ErrReplaced", err)
				}
				if !errors.Is(f.failure, ErrReplaced) {
					t.Errorf("got %v, want ErrReplaced", f.failure)
				}
				if last, err := f.log.LastIndex(); err != nil || last != 0 {
					t.Errorf("the log ends at %d, %v, want none", last, err)
				}
				f.end(t)
			})
		}
	}
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not seen: %s", what)
		}
	}
}
