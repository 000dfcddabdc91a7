package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"rutter/log"
	"rutter/raftstore/internal/admission"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/internal/command"
	"rutter/raftstore/internal/window"
)

// by is a tag's change of an author.
func by(actor string, id log.UUID, name string) *log.Change {
	c := tagChange(id, name)
	c.Actor = actor
	return c
}

// code proposes a change and returns the code of its refusal.
func code(t *testing.T, n *node, c *log.Change) string {
	t.Helper()
	result, err := n.Propose(patience(t), c)
	if err != nil {
		t.Fatal(err)
	}
	if result.Refusal == nil {
		return ""
	}
	return result.Refusal.Code
}

// One client 50 s ahead fills the window: it pushes out only its own ids, and no other client
// is refused, or forgotten.
func TestWindowFilledFromAhead(t *testing.T) {
	t.Parallel()
	n := one(t, func(c *Config) { c.DedupeCount = 60 })
	now := time.Now()
	before := by("operator:ada", newID(), "before")
	first := must(t, n, before)
	for i := range 150 {
		must(t, n, by("operator:eve", window.NewID(now.Add(50*time.Second+time.Duration(i)*time.Millisecond)), fmt.Sprintf("eve%d", i)))
		if i%30 == 0 { // the later comes first
			c1, c2 := by("operator:bob", newID(), fmt.Sprintf("early%d", i)), by("operator:bob", window.NewID(time.Now().Add(5*time.Millisecond)), fmt.Sprintf("late%d", i))
			r2 := must(t, n, c2)
			must(t, n, c1)
			if again := must(t, n, c2); again.First != r2.First {
				t.Errorf("a retry got %+v, want %+v", again, r2)
			}
		}
	}
	if again := must(t, n, before); again.First != first.First {
		t.Errorf("a retry got %+v, want %+v", again, first)
	}
	if got := code(t, n, by("operator:eve", newID(), "eve-now")); got != log.CodeTooOld {
		t.Errorf("an id below those that this author lost: %q, want %s", got, log.CodeTooOld)
	}
	n.halt(t)
	n = n.again(t)
	if again := must(t, n, before); again.First != first.First {
		t.Errorf("after a restart a retry got %+v, want %+v", again, first)
	}
	must(t, n, by("operator:ada", newID(), "after"))
}

// A change id is bound to what was asked for and by whom; however that comes again,
// it is the same.
func TestChangeIDIsBoundToItsContent(t *testing.T) {
	t.Parallel()
	nodes := three(t, nil)
	n := leaderOf(t, nodes)
	c := by("operator:ada", newID(), "one")
	first := must(t, n, c)
	anonymous := by("anonymous@10.0.0.1", newID(), "two")
	second := must(t, n, anonymous)
	asked := by("operator:ada", newID(), "three")
	asked.Content = log.RequestContent("PUT", "/x", "", []byte(`{"a": 1, "b": 2}`))
	third := must(t, n, asked)
	check := func() {
		t.Helper()
		for _, n := range nodes {
			for _, other := range []*log.Change{
				by("operator:ada", c.ID, "other"), by("operator:bob", c.ID, "one"), by("anonymous@10.0.0.1", c.ID, "one"),
				{ID: c.ID, Actor: "operator:ada", Ops: append(tagChange(c.ID, "one").Ops, tagOp("more"))},
				{ID: c.ID, Actor: c.Actor, Ops: c.Ops, By: log.Author{Role: log.RoleCN, CN: newID()}},
			} {
				if got := code(t, n, other); got != log.CodeIDReused {
					t.Errorf("an id used again by %s for %v: %q, want %s", other.Actor, other.Ops, got, log.CodeIDReused)
				}
			}
			shuffled := by("operator:ada", c.ID, "one")
			shuffled.Ops[0].Set = []string{"name", "mtu"}
			if got := must(t, n, shuffled); got.First != first.First {
				t.Errorf("the same change got %+v, want %+v", got, first)
			}
			if got := must(t, n, by("anonymous@[::1]", anonymous.ID, "two")); got.First != second.First {
				t.Errorf("by another address the same change got %+v, want %+v", got, second)
			}
			again := by("operator:ada", asked.ID, "now-something-else")
			again.Content = log.RequestContent("PUT", "/x", "", []byte(`{"b":2,"a":1}`))
			if got := must(t, n, again); got.First != third.First {
				t.Errorf("the same request got %+v, want %+v", got, third)
			}
		}
	}
	check()
	for _, n := range nodes {
		n.halt(t)
	}
	for i, n := range nodes {
		nodes[i] = n.again(t)
	}
	leaderOf(t, nodes)
	check()
	if head := nodes[0].Head().Seq; head != 3 {
		t.Errorf("head %d, want 3", head)
	}
}

// applyOne applies a change in a store that is no member of anything.
func applyOne(t *testing.T, s *Store, index uint64, c *log.Change) log.Result {
	t.Helper()
	encoded, err := encodeStamped(c)
	if err != nil {
		t.Fatal(err)
	}
	response := fsm{s}.Apply(&raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: batchEntry([]*admission.Proposal{{Bytes: encoded}})})
	results, ok := response.([]log.Result)
	if !ok {
		t.Fatal(response)
	}
	return results[0]
}

// What the window makes of the entry that raises the version is the same on a server
// that ran on, one that was started again before it, and one after it.
func TestWindowAtTheRaise(t *testing.T) {
	t.Parallel()
	const servers = 3
	var stores [servers]*Store
	var configs [servers]Config
	open := func(i int) {
		s, err := Open(configs[i])
		if err != nil {
			t.Fatal(err)
		}
		stores[i] = s
	}
	restart := func(i int) { // as far as the files go: there is no raft here
		s := stores[i]
		if err := s.persister.Flush(); err != nil {
			t.Fatal(err)
		}
		c, err := changesdb.Load(dbOf(s.files), s.cfg.DedupeAge, s.cfg.DedupeCount)
		if err != nil {
			t.Fatal(err)
		}
		s.applier.window, s.applier.head, s.state, s.head = c.Window, c.Head, c.State, c.Head
	}
	for i := range configs {
		configs[i] = testConfig(t, "s1", t.TempDir())
		configs[i].DedupeCount, configs[i].DedupeAge = 20, time.Hour
		open(i)
	}
	defer func() {
		for _, s := range stores {
			_ = s.Close()
		}
	}()
	index := uint64(0)
	all := func(data []byte) {
		t.Helper()
		index++
		for _, s := range stores {
			if err, failed := (fsm{s}).Apply(&raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: data}).(error); failed {
				t.Fatal(err)
			}
		}
	}
	same := func(when string) {
		t.Helper()
		for _, s := range stores[1:] {
			if s.applier.head.Digest() != stores[0].applier.head.Digest() {
				t.Errorf("%s: servers differ", when)
			}
		}
	}
	all(command.EncodeGenesis(newID(), log.FeatureFirst))
	now := time.Now()
	var changes []*log.Change
	write := func(n int, every, ahead time.Duration) {
		t.Helper()
		for i := range n {
			now = now.Add(every)
			c := by(fmt.Sprintf("operator:%d", i%3), window.NewID(now.Add(ahead*time.Duration(i%2))), fmt.Sprintf("t%d", len(changes)))
			c.Time = log.TimeOf(now)
			index++
			for _, s := range stores {
				if r := applyOne(t, s, index, c); r.Refusal != nil {
					t.Fatalf("change %d: %v", len(changes), r.Refusal)
				}
			}
			changes = append(changes, c)
		}
	}
	write(25, time.Second, 0)
	write(10, time.Minute, 30*time.Second)
	restart(1)
	same("after a restart below the raise")
	all(binary.BigEndian.AppendUint32([]byte{command.Feature}, log.FeatureContained))
	same("at the raise")
	restart(2)
	same("after a restart above the raise")
	write(60, time.Minute, 0) // what was remembered before goes by count, and by age
	same("in the end")
	restart(0)
	same("after another restart")
	for i, c := range changes { // none is applied twice
		index++
		for _, s := range stores {
			seq := s.applier.head.Seq
			c.Time = log.TimeOf(now)
			applyOne(t, s, index, c)
			if s.applier.head.Seq != seq {
				t.Fatalf("change %d was applied again", i)
			}
		}
	}
	same("after retries of all")
}

// A server that would remember other ids than the others is not let in.
func TestServersCompareTheirWindows(t *testing.T) {
	t.Parallel()
	n := one(t, nil)
	must(t, n, tagChange(newID(), "a"))
	cfg := testConfig(t, "s2", t.TempDir())
	cfg.DedupeCount = 5
	j := launch(t, cfg)
	if err := n.members.AddNonvoter(patience(t), "s2", j.Address()); err == nil || !strings.Contains(err.Error(), "DedupeCount") {
		t.Errorf("got %v, want it refused for its window", err)
	}
	if err := (&identity{ID: "old"}).checkWindow(&n.cfg); err != nil {
		t.Errorf("a program that does not tell is refused: %v", err)
	}
}

// The answer to a change of unknown fate has nothing of the advice that a later try
// got: to split it, or to send it with a new id.
func TestUnknownFateAdvisesNothing(t *testing.T) {
	t.Parallel()
	w := window.New(time.Hour, 10, log.UUID{})
	unknown := fmt.Errorf("%w: the connection was lost", ErrUnknown)
	for _, later := range []error{
		w.Check(window.NewID(time.Unix(0, 0)), log.Asker{}, log.TimeOf(time.Now())),
		fmt.Errorf("split it: %w", log.ErrTooLarge),
		fmt.Errorf("%w: 3 of them", ErrOverloaded),
	} {
		err := stillUnknown(unknown, later)
		var refusal *log.Refusal
		if !errors.Is(err, ErrUnknown) || errors.As(err, &refusal) || errors.Is(err, log.ErrTooLarge) || errors.Is(err, ErrOverloaded) {
			t.Errorf("%v: want the fate to be unknown, and nothing else", err)
		}
		if text := err.Error(); strings.Contains(text, "new id") || strings.Contains(text, "split") {
			t.Errorf("%q gives advice", text)
		}
		if err := stillUnknown(nil, later); !errors.Is(err, later) {
			t.Errorf("%v: want what the only try got", err)
		}
	}
}
