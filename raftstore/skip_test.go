package raftstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"rutter/log"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/command"
	"rutter/raftstore/internal/digest"
	"rutter/raftstore/internal/peer"
	"rutter/raftstore/offline"
	"rutter/raftstore/skipped"
)

// errPoison is what the tests' entries stop apply with.
var errPoison = errors.New("a fault of the test")

// poisonedBy returns a fault that a change meets in apply, by an error or a panic.
func poisonedBy(id log.UUID, panics bool) func(uint64, log.UUID) error {
	return func(_ uint64, change log.UUID) error {
		switch {
		case change != id:
			return nil
		case panics:
			panic(errPoison)
		}
		return errPoison
	}
}

// stopBy gives servers that run a fault.
func stopBy(nodes []*node, fault func(uint64, log.UUID) error) {
	for _, n := range nodes {
		n.applier.mu.Lock()
		n.applier.fault = fault
		n.applier.mu.Unlock()
	}
}

// launchPoisoned starts a halted server from its folder, with a fault.
func launchPoisoned(t *testing.T, n *node, fault func(uint64, log.UUID) error) *node {
	t.Helper()
	cfg := n.cfg
	cfg.Listen = n.Address()
	s, err := Open(cfg)
	if err != nil {
		t.Fatalf("open %s: %v", cfg.ID, err)
	}
	s.applier.fault = fault
	again := launched(t, s)
	again.cfg = cfg
	return again
}

// stopAt waits until a majority has stopped by itself, with errors that name the
// entry and the way past it, and stops the others, which cannot go on. It returns
// one that stopped.
func stopAt(t *testing.T, index uint64, nodes ...*node) (stopped *node) {
	t.Helper()
	patient := patience(t)
	for left := len(nodes)/2 + 1; left > 0; {
		for _, n := range nodes {
			if n.cancel == nil {
				continue
			}
			select {
			case err := <-n.ended:
				want := fmt.Sprintf("rutter cluster skip --data %s --index %d", n.cfg.Dir, index)
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("run %s: %v, want %q in it", n.cfg.ID, err, want)
				}
				n.cancel()
				n.cancel = nil
				if err := n.Close(); err != nil {
					t.Error(err)
				}
				stopped = n
				left--
			case <-time.After(retryPause):
			case <-patient.Done():
				t.Fatalf("%d more should have stopped", left)
			}
		}
	}
	for _, n := range nodes {
		if n.cancel != nil {
			n.cancel()
			n.cancel = nil
			<-n.ended // it may have come to the entry just now
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	return stopped
}

// rawBatch is a raft entry of changes, stamped.
func rawBatch(t *testing.T, changes ...*log.Change) []byte {
	t.Helper()
	var batch []byte
	for _, c := range changes {
		c.Time = log.TimeOf(time.Now())
		b, err := log.NewEncoder().Change(c)
		if err != nil {
			t.Fatal(err)
		}
		batch = log.AppendBatch(batch, b)
	}
	return append([]byte{command.Batch}, batch...)
}

// poison gives the leader an entry, which is committed, and returns its index.
func poison(t *testing.T, nodes []*node, data []byte) uint64 {
	t.Helper()
	future := leaderOf(t, nodes).raft.Load().Apply(data, enqueueTimeout)
	_ = future.Error() // the servers stop
	index := future.Index()
	if index == 0 {
		t.Fatal("the entry got no index")
	}
	return index
}

// sameDigests waits until all servers are at the same entry, and compares them.
func sameDigests(t *testing.T, nodes []*node) digest.Sum {
	t.Helper()
	var heads []changesdb.Head
	for ctx := patience(t); ctx.Err() == nil; {
		heads = heads[:0]
		for _, n := range nodes {
			n.mu.RLock()
			heads = append(heads, n.head)
			n.mu.RUnlock()
		}
		same := true
		for _, h := range heads {
			same = same && h.Command == heads[0].Command && h.Seq == heads[0].Seq
		}
		if same {
			break
		}
		_ = nodes[0].pause(ctx, nil)
	}
	for i, h := range heads {
		if h.Digest() != heads[0].Digest() || h.Command != heads[0].Command {
			t.Fatalf("server %d is at raft index %d with digest %x, the first at %d with %x", i, h.Command, h.Digest(), heads[0].Command, heads[0].Digest())
		}
	}
	return heads[0].Digest()
}

// plantOn plants a skip in the folders of stopped servers, as a file of it says.
func plantOn(t *testing.T, skip skipped.Skip, nodes ...*node) {
	t.Helper()
	text, err := json.Marshal(skip)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		read, err := skipped.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if missing, err := offline.PlantSkip(n.cfg.Dir, read); err != nil || missing {
			t.Fatalf("plant on %s: %v, log ends before it: %v", n.cfg.ID, err, missing)
		}
	}
}

// recorded returns the one entry that records a skip.
func recorded(t *testing.T, s *Store, skip skipped.Skip) log.Entry {
	t.Helper()
	var found []log.Entry
	for _, e := range all(t, s) {
		event, err := e.Event()
		if err != nil {
			t.Fatal(err)
		}
		if event.Kind == log.KindSetting && event.ChangeID == skip.ID {
			value := event.Object.(*log.Setting).Value
			if event.Actor != skip.Actor || !strings.Contains(value, skip.Entry) || !strings.Contains(value, fmt.Sprintf(`"raft_index":%d`, skip.Index)) || !strings.Contains(value, skip.Reason) {
				t.Errorf("the record is %+v by %s, want index, entry, actor and reason of %+v", event.Object, event.Actor, skip)
			}
			found = append(found, e)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d entries record the skip, want one", len(found))
	}
	return found[0]
}

// An entry at which every server stops, whatever the cause, is skipped, whole or
// in part, by what is planted on each: they go on, agree, say in the log what was
// done, and a retry learns it.
func TestSkip(t *testing.T) {
	t.Parallel()
	good, bad := newID(), newID()
	both := func(t *testing.T) []byte { return rawBatch(t, tagChange(good, "good"), tagChange(bad, "bad")) }
	tests := []struct {
		name    string
		feature uint32
		fault   func(uint64, log.UUID) error
		data    func(t *testing.T) []byte
		changes []log.UUID // skipped; none: all
		good    bool       // the other change was applied
	}{
		{"error", 1, poisonedBy(bad, false), both, nil, false},
		{"panic", 2, poisonedBy(bad, true), both, nil, false},
		{"one change", 2, poisonedBy(bad, true), both, []log.UUID{bad}, true},
		{"no batch", 2, nil, func(*testing.T) []byte { return []byte{command.Batch, 99, 1, 2} }, nil, false},
		{"unknown command", 2, nil, func(*testing.T) []byte { return []byte{99, 1} }, nil, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			nodes := three(t, func(c *Config) { c.Features = test.feature })
			must(t, leaderOf(t, nodes), tagChange(newID(), "before"))
			sameDigests(t, nodes)
			stopBy(nodes, test.fault)
			index := poison(t, nodes, test.data(t))
			stopped := stopAt(t, index, nodes...)
			view, err := offline.ViewEntry(stopped.cfg.Dir, index)
			if err != nil || view.Applied || view.Stopped == nil || view.Stopped.Error == "" {
				t.Fatalf("the entry is shown as %+v, %v; want it not applied, with why the server stopped", view, err)
			}
			skip, err := offline.NewSkip(nodes[0].cfg.Dir, index, test.changes, "ann", "it stops everything", time.Now())
			if err != nil {
				t.Fatal(err)
			}
			plantOn(t, skip, nodes...)
			for i, n := range nodes {
				nodes[i] = launchPoisoned(t, n, test.fault)
			}
			must(t, leaderOf(t, nodes), tagChange(newID(), "after"))
			digest := sameDigests(t, nodes)
			first := recorded(t, nodes[0].Store, skip)
			for _, n := range nodes[1:] {
				if e := recorded(t, n.Store, skip); e.Seq != first.Seq || !bytes.Equal(e.Bytes, first.Bytes) {
					t.Errorf("%s recorded %x at %d, the first %x at %d", n.cfg.ID, e.Bytes, e.Seq, first.Bytes, first.Seq)
				}
			}
			if len(test.data(t)) > 16 { // it had changes
				checkRetries(t, nodes, test.good, good, bad)
			}
			for i, n := range nodes { // what was passed stays so
				n.halt(t)
				planted, err := offline.Skips(n.cfg.Dir)
				if err != nil || len(planted) != 1 || planted[0].State != skipped.Passed {
					t.Errorf("%s has %+v, %v; want one skip, passed", n.cfg.ID, planted, err)
				}
				if err := offline.TakeBackSkip(n.cfg.Dir, index); !errors.Is(err, skipped.Err) {
					t.Errorf("a skip that was passed is taken back: %v, want ErrSkip", err)
				}
				nodes[i] = n.again(t)
			}
			must(t, leaderOf(t, nodes), tagChange(newID(), "at_last"))
			if sameDigests(t, nodes) == digest {
				t.Error("the digest did not move")
			}
		})
	}
}

// checkRetries proposes again what was in the skipped entry.
func checkRetries(t *testing.T, nodes []*node, applied bool, good, bad log.UUID) {
	t.Helper()
	result, err := leaderOf(t, nodes).Propose(patience(t), tagChange(bad, "bad"))
	if err != nil || result.Refusal == nil || result.Refusal.Code != log.CodeSkipped {
		t.Errorf("a retry of the change that was skipped: %+v, %v; want %s", result, err, log.CodeSkipped)
	}
	result, err = leaderOf(t, nodes).Propose(patience(t), tagChange(good, "good"))
	switch {
	case err != nil:
		t.Error(err)
	case applied && (result.Refusal != nil || result.First == 0):
		t.Errorf("a retry of the other change: %+v, want its first result", result)
	case !applied && (result.Refusal == nil || result.Refusal.Code != log.CodeSkipped):
		t.Errorf("a retry of the other change: %+v, want %s", result, log.CodeSkipped)
	}
}

// A server without the skip, or with another one, gets no entry from those that
// have it, and says why. One with an empty folder takes it over, whether it gets
// the log or an image.
func TestSkipIsJoined(t *testing.T) {
	t.Parallel()
	nodes := three(t, nil)
	must(t, leaderOf(t, nodes), tagChange(newID(), "before"))
	sameDigests(t, nodes)
	index := poison(t, nodes, []byte{99, 1})
	stopAt(t, index, nodes...)
	skip, err := offline.NewSkip(nodes[0].cfg.Dir, index, nil, "ann", "why", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	plantOn(t, skip, nodes[:2]...)
	for i, n := range nodes {
		nodes[i] = launchPoisoned(t, n, nil)
	}
	left := nodes[2]
	must(t, leaderOf(t, nodes[:2]), tagChange(newID(), "after"))
	sameDigests(t, nodes[:2])
	want := fmt.Sprintf("skip of raft index %d", index)
	for ctx := patience(t); ; {
		if err := left.Ready(); err != nil && strings.Contains(err.Error(), want) && strings.Contains(err.Error(), "rutter cluster skip") {
			break
		}
		if err := left.pause(ctx, nil); err != nil {
			t.Fatalf("the one without the skip says %v, want %q", left.Ready(), want)
		}
	}
	if at := left.appliedIndex(); at >= index {
		t.Fatalf("the one without the skip is at raft index %d", at)
	}
	left.halt(t)

	other := skip
	other.Reason = "another"
	plantOn(t, other, left)
	left = left.again(t)
	for ctx := patience(t); left.skipping.trouble.Load() == nil; {
		if err := left.pause(ctx, nil); err != nil {
			t.Fatal("the one with another skip was not refused")
		}
	}
	left.halt(t)
	if err := offline.TakeBackSkip(left.cfg.Dir, index); err != nil {
		t.Fatal(err)
	}
	plantOn(t, skip, left)
	nodes[2] = left.again(t)
	must(t, leaderOf(t, nodes), tagChange(newID(), "all"))
	sameDigests(t, nodes)

	// An empty folder.
	cfg := testConfig(t, "s4", filepath.Join(t.TempDir(), "s4"))
	cfg.Join = []string{nodes[0].Address(), nodes[1].Address()}
	nodes = append(nodes, launch(t, cfg))
	must(t, leaderOf(t, nodes), tagChange(newID(), "four"))
	sameDigests(t, nodes)
	recorded(t, nodes[3].Store, skip)
	if k := nodes[3].skipping.skips(); len(k) != 1 || k[0].Sum() != skip.Sum() || k[0].State != skipped.Passed {
		t.Errorf("the newcomer has the skips %+v", k)
	}
}

// A skip is of one entry of one cluster, and can be taken back before it is reached.
func TestSkipChecks(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	must(t, n, tagChange(newID(), "before"))
	index := poison(t, []*node{n}, []byte{99, 1})
	stopAt(t, index, n)
	dir, now := n.cfg.Dir, time.Now()
	refused := func(what string, err error, want string) {
		t.Helper()
		if !errors.Is(err, skipped.Err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want ErrSkip and %q", what, err, want)
		}
	}
	_, err := offline.NewSkip(dir, index+100, nil, "ann", "why", now)
	refused("beyond the log", err, "ends before it")
	_, err = offline.NewSkip(dir, 2, nil, "ann", "why", now)
	refused("an entry that was applied", err, "applied")
	_, err = offline.NewSkip(dir, index, nil, "ann", "", now)
	refused("no reason", err, "--reason")
	_, err = offline.NewSkip(dir, index, []log.UUID{newID()}, "ann", "why", now)
	refused("a change that is not there", err, "no change")

	skip, err := offline.NewSkip(dir, index, nil, "ann", "why", now)
	if err != nil {
		t.Fatal(err)
	}
	other := skip
	other.Entry = strings.Repeat("0", len(other.Entry))
	_, err = offline.PlantSkip(dir, other)
	refused("another entry", err, "another entry")
	other = skip
	other.Cluster = newID()
	_, err = offline.PlantSkip(dir, other)
	refused("another cluster", err, "of cluster")
	plantOn(t, skip, n)
	plantOn(t, skip, n) // twice is nothing
	other = skip
	other.Actor = "bob"
	_, err = offline.PlantSkip(dir, other)
	refused("a second one", err, "--undo")
	if err := offline.TakeBackSkip(dir, index); err != nil {
		t.Fatal(err)
	}
	if k, err := offline.Skips(dir); err != nil || len(k) != 0 {
		t.Errorf("after it was taken back: %+v, %v", k, err)
	}
	refused("taken back twice", offline.TakeBackSkip(dir, index), "no skip")
	stopAt(t, index, launchPoisoned(t, n, nil))
	for _, text := range []string{"", "{}", "secret", `{"raft_index":"secret"}`, `{"secret":1}`} {
		if _, err := skipped.Parse([]byte(text)); !errors.Is(err, skipped.Err) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want ErrSkip without what the file holds", text, err)
		}
	}
}

// A skip whose entry gave its place to another one is void, and changes nothing.
func TestSkipVoid(t *testing.T) {
	t.Parallel()
	s := newStore(Config{ID: "s1", Dir: t.TempDir(), Now: time.Now, Logger: slog.New(slog.DiscardHandler), MapBytes: 1 << 24})
	cfg, err := s.cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s.cfg = cfg
	if err := s.openFiles(); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a := &s.applier
	apply := func(index uint64, data []byte) {
		t.Helper()
		s.applier.applyEntry(&raft.Log{Index: index, Term: 2, Type: raft.LogCommand, Data: data})
		if err := s.failure(); err != nil {
			t.Fatal(err)
		}
	}
	cluster := newID()
	apply(1, command.EncodeGenesis(cluster, log.FeatureVersion))
	before := a.head.Digest()
	a.head.Skips = a.head.Skips.With(skipped.Skip{Cluster: cluster, Index: 2, Entry: strings.Repeat("0", 64), ID: newID(), Actor: "ann", Reason: "why"})
	if a.head.Digest() != before {
		t.Error("a skip that waits is in the digest")
	}
	apply(2, rawBatch(t, tagChange(newID(), "a")))
	if a.head.Seq != 1 || a.head.Skips[0].State != skipped.Void {
		t.Errorf("seq %d, skips %+v; want the entry applied, and the skip void", a.head.Seq, a.head.Skips)
	}
	at := a.head
	at.Skips = nil
	if at.Digest() != a.head.Digest() {
		t.Error("a skip that is void is in the digest")
	}
	at.Skips = a.head.Skips.Become(0, skipped.Passed)
	if at.Digest() == a.head.Digest() {
		t.Error("a skip that was passed is not in the digest")
	}
	foreign := skipped.Skip{Cluster: newID(), Index: 9, Entry: strings.Repeat("0", 64), ID: newID(), Actor: "ann", Reason: "why"}
	a.head.Skips = a.head.Skips.With(foreign)
	apply(3, rawBatch(t, tagChange(newID(), "b")))
	if len(a.head.Skips) != 1 {
		t.Errorf("skips %+v; want none of another cluster", a.head.Skips)
	}
}

// Where nothing was ever planted, no row and no byte of a greeting says a word of
// skips, as programs expect that know of none.
func TestNoSkips(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	must(t, n, tagChange(newID(), "a"))
	cluster := n.Head().Cluster
	note, err := n.skipping.skipNote()
	if got := peer.Greeting(cluster, note); err != nil || !bytes.Equal(got, append([]byte{'R'}, cluster[:]...)) {
		t.Errorf("it greets with %x, %v", got, err)
	}
	if text, err := json.Marshal(n.members.identity()); err != nil || strings.Contains(string(text), "skips") {
		t.Errorf("its identity is %s, %v", text, err)
	}
	n.halt(t)
	db, err := bbolt.Open(filepath.Join(n.cfg.Dir, changesdb.Name), 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		if row := tx.Bucket(changesdb.BucketMeta).Get(skipped.Key); row != nil {
			t.Errorf("changes.db has the row %q", row)
		}
		return nil
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Error(err)
	}
}

// A recovery goes past an entry by a skip, too, and not without.
func TestSkipRecover(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	must(t, n, tagChange(newID(), "before"))
	index := poison(t, []*node{n}, []byte{99, 1})
	stopAt(t, index, n)
	rebirth := offline.Rebirth{Dir: n.cfg.Dir, Member: Member{ID: "s1", Address: n.Address()}}
	quiet := slog.New(slog.DiscardHandler)
	if _, err := Recover(rebirth, quiet); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("--index %d", index)) {
		t.Fatalf("recovered without the skip: %v", err)
	}
	skip, err := offline.NewSkip(n.cfg.Dir, index, nil, "ann", "why", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	plantOn(t, skip, n)
	later := skip
	later.Index, later.ID = index+100, newID()
	if missing, err := offline.PlantSkip(n.cfg.Dir, later); err != nil || !missing {
		t.Fatalf("a skip beyond the log's end: missing %v, %v", missing, err)
	}
	if _, err := Recover(rebirth, quiet); err != nil {
		t.Fatal(err)
	}
	n = n.again(t)
	if k := n.skipping.skips(); len(k) != 1 || k[0].Index != index {
		t.Errorf("after the recovery it has the skips %+v, want the one that was passed", k)
	}
	must(t, n, tagChange(newID(), "after"))
	recorded(t, n.Store, skip)
	ctx, cancel := context.WithCancel(patience(t))
	defer cancel()
	if _, err := n.Consistent(ctx); err != nil {
		t.Error(err)
	}
	cfg := testConfig(t, "s2", filepath.Join(t.TempDir(), "s2"))
	cfg.Join = []string{n.Address()}
	nodes := []*node{n, launch(t, cfg)}
	sameDigests(t, nodes) // the image has the skip, which is of the old identity
	must(t, leaderOf(t, nodes), tagChange(newID(), "two"))
	sameDigests(t, nodes)
}
