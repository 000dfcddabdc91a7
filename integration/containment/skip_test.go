package containment

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftwal "github.com/hashicorp/raft-wal"

	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/log"
)

// dataOf is the data folder of a server.
func dataOf(s *bench.Server) string {
	for i, arg := range s.Args {
		if arg == "--data" {
			return s.Args[i+1]
		}
	}
	return ""
}

// rutter runs a command, which has to end with code, and returns what it said.
func rutter(t *testing.T, code int, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(patience(t), program, args...).CombinedOutput()
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if got != code {
		t.Fatalf("rutter %s: exit code %d, want %d:\n%s", strings.Join(args, " "), got, code, out)
	}
	return string(out)
}

// until waits until something holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for ctx := patience(t); !holds(); {
		select {
		case <-ctx.Done():
			t.Fatal("waited in vain: " + what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// openRaft opens the raft log of a stopped server.
func openRaft(t *testing.T, s *bench.Server) *raftwal.WAL {
	t.Helper()
	store, err := raftwal.Open(filepath.Join(dataOf(s), "raft.wal"))
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// poison gives the logs of all stopped servers the same last entry, of a command that
// no program knows, and returns its index.
func poison(t *testing.T, servers []*bench.Server) uint64 {
	t.Helper()
	var stores []*raftwal.WAL
	longest, last := 0, uint64(0)
	for i, s := range servers {
		store := openRaft(t, s)
		stores = append(stores, store)
		if index, err := store.LastIndex(); err != nil {
			t.Fatal(err)
		} else if index > last {
			longest, last = i, index
		}
	}
	for _, store := range stores {
		first, err := store.LastIndex()
		if err != nil {
			t.Fatal(err)
		}
		var entry raft.Log
		for index := first; index <= last; index++ {
			if err := stores[longest].GetLog(index, &entry); err != nil {
				t.Fatal(err)
			}
			if index == first {
				continue
			}
			if err := store.StoreLog(&entry); err != nil {
				t.Fatal(err)
			}
		}
		if err := store.StoreLog(&raft.Log{Index: last + 1, Term: entry.Term, Type: raft.LogCommand, Data: []byte{99, 1}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, store := range stores {
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return last + 1
}

// stopAll stops the servers that run.
func stopAll(t *testing.T, servers []*bench.Server) {
	t.Helper()
	for _, s := range servers {
		if err := s.Stop(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
}

// An operator takes a cluster past an entry at which all its servers stop: they are
// told how by what stopped them, and one that was forgotten is refused until it has
// the same skip.
func TestSkipAnEntry(t *testing.T) {
	t.Parallel()
	c := cluster(t, bench.Options{})
	ctx := patience(t)
	if _, err := c.Client.Create(ctx, "/nic_tags", []byte(`{"name":"before"}`)); err != nil {
		t.Fatal(err)
	}
	stopAll(t, c.Servers)
	index := poison(t, c.Servers)
	for _, s := range c.Servers {
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
	}
	ended := func() (n int) {
		for _, s := range c.Servers {
			if !s.Runs() {
				n++
			}
		}
		return n
	}
	until(t, "a majority to stop at the entry", func() bool { return ended() >= 2 })
	var stopped *bench.Server
	for _, s := range c.Servers {
		if !s.Runs() {
			stopped = s
		}
	}
	want := fmt.Sprintf("rutter cluster skip --data %s --index %d", dataOf(stopped), index)
	if said := stopped.Tail(); !strings.Contains(said, want) {
		t.Errorf("%s stopped, and said\n%s\nwant %q in it", stopped.ID, said, want)
	}
	stopAll(t, c.Servers)

	at, file := fmt.Sprint(index), filepath.Join(t.TempDir(), "skip.json")
	out := rutter(t, 0, "cluster", "skip", "--data", dataOf(stopped), "--index", at)
	for _, want := range []string{"raft index " + at, "command 99", "not applied", "the server stopped at it", "upgrade this server", "Nothing was planted"} {
		if !strings.Contains(out, want) {
			t.Errorf("the entry is shown without %q:\n%s", want, out)
		}
	}
	if out := rutter(t, 0, "cluster", "skip", "--data", dataOf(stopped), "--list"); !strings.Contains(out, "nothing is planted") {
		t.Errorf("planted without --yes:\n%s", out)
	}
	first, second, forgotten := c.Servers[0], c.Servers[1], c.Servers[2]
	rutter(t, 0, "cluster", "skip", "--data", dataOf(first), "--index", at, "--actor", "ann", "--reason", "stops everything", "--save", file, "--yes")
	rutter(t, 0, "cluster", "skip", "--data", dataOf(second), "--from", file, "--yes")
	for _, s := range c.Servers {
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range c.Servers[:2] {
		if err := c.AwaitReady(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Client.Create(ctx, "/nic_tags", []byte(`{"name":"after"}`)); err != nil {
		t.Fatal(err)
	}
	until(t, "the forgotten server to say that it lacks the skip", func() bool {
		status, err := c.Client.StatusOf(ctx, forgotten.URL)
		return err == nil && !status.Ready && strings.Contains(status.NotReady, "skip of raft index "+at)
	})
	stopAll(t, []*bench.Server{forgotten})
	rutter(t, 0, "cluster", "skip", "--data", dataOf(forgotten), "--from", file, "--yes")
	if err := forgotten.Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitReady(ctx, forgotten); err != nil {
		t.Fatal(err)
	}
	agreeing(t, c)
	setting, err := c.Client.List(ctx, "/settings", nil)
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(setting); !strings.Contains(text, "raft.skip."+at) || !strings.Contains(text, "stops everything") {
		t.Errorf("the log says of the skip: %s", text)
	}
}

// agreeing waits until all servers are at the same place and none differs.
func agreeing(t *testing.T, c *bench.Cluster) {
	t.Helper()
	var heads []log.Cursor
	until(t, "the servers to agree", func() bool {
		heads = heads[:0]
		for _, s := range c.Servers {
			status, err := c.Client.StatusOf(t.Context(), s.URL)
			if err != nil || !status.Ready || status.Detail.Diverged != "" {
				return false
			}
			heads = append(heads, status.Head)
		}
		for _, h := range heads {
			if h != heads[0] {
				return false
			}
		}
		return true
	})
}

// A change that a killed server had acknowledged, and had in its raft log only, is
// found, shown and skipped; its retry learns that.
func TestSkipAChange(t *testing.T) {
	t.Parallel()
	c := cluster(t, bench.Options{Servers: 1})
	s, ctx := c.Servers[0], patience(t)
	stopAll(t, c.Servers) // what founded the cluster is in changes.db now
	if err := errors.Join(s.Start(), c.AwaitReady(ctx, s)); err != nil {
		t.Fatal(err)
	}
	var index uint64
	var change *log.Change
	for try := 0; index == 0; try++ {
		if try == 20 {
			t.Skip("every kill came after changes.db had the change")
		}
		name := fmt.Sprintf("tag%d", try)
		change = &log.Change{ID: client.NewChangeID(), Actor: "test", Ops: []log.Op{{Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: name}}}}
		if _, err := c.Client.Submit(ctx, change); err != nil {
			t.Fatal(err)
		}
		if err := s.Stop(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		index = waiting(t, s, name)
		if index == 0 {
			if err := errors.Join(s.Start(), c.AwaitReady(ctx, s)); err != nil {
				t.Fatal(err)
			}
		}
	}
	rutter(t, 0, "cluster", "skip", "--data", dataOf(s), "--index", fmt.Sprint(index), "--change", change.ID.String(), "--reason", "a test", "--yes")
	rutter(t, 0, "cluster", "skip", "--data", dataOf(s), "--undo", fmt.Sprint(index), "--yes")
	rutter(t, 1, "cluster", "skip", "--data", dataOf(s), "--undo", fmt.Sprint(index), "--yes")
	rutter(t, 0, "cluster", "skip", "--data", dataOf(s), "--index", fmt.Sprint(index), "--change", change.ID.String(), "--reason", "a test", "--yes")
	if err := errors.Join(s.Start(), c.AwaitReady(ctx, s)); err != nil {
		t.Fatal(err)
	}
	result, err := c.Client.Submit(ctx, change)
	var refusal *log.Refusal
	if !errors.As(err, &refusal) {
		refusal = result.Refusal
	}
	if refusal == nil || refusal.Code != log.CodeSkipped {
		t.Errorf("the retry of the change gets %+v, %v; want %s", result, err, log.CodeSkipped)
	}
	name := change.Ops[0].Object.ID()
	if _, err := c.Client.Get(ctx, "/nic_tags/"+name, nil); err == nil {
		t.Errorf("%s is there", name)
	}
	stopAll(t, c.Servers)
	if out := rutter(t, 0, "cluster", "skip", "--data", dataOf(s), "--list"); !strings.Contains(out, "passed") {
		t.Errorf("the list says\n%s", out)
	}
}

// waiting looks for the raft entry of a killed server that creates a tag and is not in
// changes.db; 0 if there is none.
func waiting(t *testing.T, s *bench.Server, tag string) uint64 {
	t.Helper()
	var content struct {
		Index uint64 `json:"raft_index"`
		Last  uint64 `json:"last_index"`
	}
	out, err := exec.CommandContext(patience(t), program, "snapshot", "inspect", "--data", dataOf(s), "-o", "json").Output()
	if err == nil {
		err = json.Unmarshal(out, &content)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for index := content.Index + 1; index <= content.Last; index++ {
		out := rutter(t, 0, "cluster", "skip", "--data", dataOf(s), "--index", fmt.Sprint(index))
		if strings.Contains(out, "create nic_tag "+tag+" ") && strings.Contains(out, "not applied") {
			return index
		}
	}
	return 0
}
