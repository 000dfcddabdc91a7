package raftstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"rutter/log/changetest"

	"rutter/log"
	"rutter/raftstore/internal/changesdb"
	"rutter/raftstore/offline"
)

// poisoned are changes that stopped every server of the first feature version, at
// once or at their retry, and again at each start.
func poisoned(t testing.TB) []*log.Change {
	long := poisons(300 << 10)
	change := func(by log.Author, op log.Op) *log.Change {
		return &log.Change{ID: newID(), Actor: "test", By: by, Ops: []log.Op{op}}
	}
	trusted, cn := log.Author{Role: log.RoleTrusted}, log.Author{Role: log.RoleCN, CN: changetest.UUID(11)}
	return []*log.Change{
		change(trusted, long[0]),
		change(trusted, long[6]),
		change(cn, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: strings.Repeat("a", 600<<10)}),
		change(cn, log.Op{Action: log.Create, Kind: log.KindVM, Set: long[8].Set[:5000], Object: &log.VM{UUID: changetest.UUID(85), OwnerUUID: changetest.UUID(1), ServerUUID: changetest.UUID(11), State: "running"}}),
		change(trusted, log.Op{Action: log.Create, Kind: log.KindVM, Object: withUnknown(t, &log.VM{Alias: "a", OwnerUUID: fixedID(1)}, log.MaxChangeBytes-130)}),
	}
}

// TestPoisonIsRefused: what stopped all servers is refused within the limits, also
// when it is tried again, when it comes from a leader that let it into the log, and
// after a restart; under either feature version.
func TestPoisonIsRefused(t *testing.T) {
	t.Parallel()
	for _, feature := range []uint32{log.FeatureFirst, log.FeatureContained} {
		t.Run(fmt.Sprintf("version %d", feature), func(t *testing.T) {
			t.Parallel()
			nodes := three(t, func(c *Config) { c.Features = feature })
			leader := leaderOf(t, nodes)
			must(t, leader, &log.Change{ID: newID(), By: log.Author{Role: log.RoleTrusted}, Ops: []log.Op{changetest.Op(t, `create server {"uuid": "#11#", "hostname": "cn1"}`)}})
			changes := poisoned(t)
			for range 2 {
				for _, c := range changes {
					for _, n := range nodes {
						refusedShort(t, n, c)
					}
				}
			}
			if n := leader.counters.refused.Load(); feature == log.FeatureFirst && n > 0 {
				t.Errorf("%d of them got into the log, where servers of the first program meet them", n)
			}
			for range 2 { // as a leader of before lets it in, and its client tries again
				for _, c := range changes {
					stamped := *c
					stamped.Time = log.TimeOf(time.Now())
					let(t, nodes, encodedChange(t, &stamped))
				}
			}
			allAgree(t, nodes)
			for _, n := range nodes {
				n.halt(t)
			}
			for i, n := range nodes {
				nodes[i] = n.again(t)
			}
			for _, c := range changes {
				refusedShort(t, leaderOf(t, nodes), c)
			}
			must(t, leaderOf(t, nodes), tagChange(newID(), "last"))
			allAgree(t, nodes)
			for _, n := range nodes {
				n.halt(t)
			}
			recovered(t, nodes[0], changes)
		})
	}
}

// let puts an encoded change into the log through the leader, unchecked.
func let(t *testing.T, nodes []*node, raw []byte) {
	t.Helper()
	for ctx := patience(t); ; {
		if leaderOf(t, nodes).raft.Load().Apply(batchOf(raw), enqueueTimeout).Error() == nil {
			return
		}
		if nodes[0].pause(ctx, nil) != nil {
			t.Fatal("nobody leads")
		}
	}
}

// recovered makes a cluster of one of a folder with poison in its files.
func recovered(t *testing.T, n *node, changes []*log.Change) {
	t.Helper()
	if _, err := Recover(offline.Rebirth{Dir: n.cfg.Dir, Member: Member{ID: n.cfg.ID}}, n.cfg.Logger); err != nil {
		t.Fatalf("recover: %v", err)
	}
	n.cfg.InitialMembers = nil
	n = n.again(t)
	leaderOf(t, []*node{n})
	for _, c := range changes {
		refusedShort(t, n, c)
	}
	must(t, n, tagChange(newID(), "alone"))
}

// refusedShort proposes what must be refused in few words.
func refusedShort(t *testing.T, n *node, c *log.Change) {
	t.Helper()
	result, err := n.Propose(patience(t), c)
	if err != nil {
		t.Fatalf("%s: %v", n.cfg.ID, err)
	}
	if result.Refusal == nil {
		t.Fatalf("%s: accepted: %+v", n.cfg.ID, result)
	}
	encoded, err := log.NewEncoder().Result(&result)
	if err != nil || len(encoded) > log.MaxResultBytes {
		t.Fatalf("%s: an answer of %d bytes, %v", n.cfg.ID, len(encoded), err)
	}
	for _, e := range append(result.Refusal.Errors, log.FieldError{Message: result.Refusal.Message}) {
		if len(e.Message) > log.MaxMessageBytes+100 || strings.ContainsAny(e.Message, "\x7f\x00") {
			t.Fatalf("%s: a message of %d bytes: %.200q", n.cfg.ID, len(e.Message), e.Message)
		}
	}
}

// allAgree waits until all have applied the same, and compares their digests.
func allAgree(t *testing.T, nodes []*node) {
	t.Helper()
	at := func(n *node) point {
		n.applier.mu.Lock()
		defer n.applier.mu.Unlock()
		h := n.applier.head
		return point{h.Command, h.Seq, h.Digest()}
	}
	for ctx := patience(t); ; {
		for _, n := range nodes {
			if err := n.failure(); err != nil {
				t.Fatalf("%s stopped: %v", n.cfg.ID, err)
			}
		}
		if a, b, c := at(nodes[0]), at(nodes[1]), at(nodes[2]); a.index == b.index && b.index == c.index {
			if a != b || b != c {
				t.Fatalf("they differ: %+v %+v %+v", a, b, c)
			}
			return
		}
		if nodes[0].pause(ctx, nil) != nil {
			t.Fatal("they do not come to the same index")
		}
	}
}

// TestPanicIsARefusal: where the program fails while it decides, the change is
// refused, counted and remembered, and the state is what it was; where it fails
// while it applies, the server stops.
func TestPanicIsARefusal(t *testing.T) {
	t.Parallel()
	s := bareStore(t, t.TempDir())
	defer s.close()
	s.found(log.FeatureVersion)
	before := s.state.Sum()
	// No bytes decode to an object that is nil: the program's own fault stands for any.
	var none *log.VM
	d := s.applier.decide(&log.Change{ID: fixedID(1), Time: baseTime, By: log.Author{Role: log.RoleTrusted}, Ops: []log.Op{{Action: log.Create, Kind: log.KindVM, Object: none}}})
	if r := d.result.Refusal; r == nil || r.Code != log.CodeUndecided || len(d.events) > 0 || d.result.ChangeID != fixedID(1) {
		t.Errorf("got %+v", d)
	}
	if got := s.counters.undecided.Load(); got != 1 || s.state.Sum() != before || s.failure() != nil {
		t.Errorf("%d changes counted as undecided; the state is another, or the server stopped: %v", got, s.failure())
	}
	good := encodedChange(t, &log.Change{ID: fixedID(2), Time: baseTime, Ops: []log.Op{changetest.Op(t, asked[0])}, By: log.Author{Role: log.RoleTrusted}})
	if r := s.batch(good)[0]; r.Refusal != nil {
		t.Errorf("the next change: %v", r.Refusal)
	}
	s.ring = changesdb.Ring{} // has no room: the fold fails half way
	next := encodedChange(t, &log.Change{ID: fixedID(3), Time: baseTime, Ops: []log.Op{changetest.Op(t, settling[0])}, By: log.Author{Role: log.RoleTrusted}})
	if err, ok := s.entry(s.applier.head.Applied+1, batchOf(next)).(error); !ok || s.failure() == nil {
		t.Errorf("a panic while applying did not stop the server: %v", err)
	}
}

// TestUnreadableChange: bytes that are no change are refused in apply, without a
// trace in what servers agree on, and are not proposed by a leader; those of a
// newer format stop the server.
func TestUnreadableChange(t *testing.T) {
	t.Parallel()
	s := bareStore(t, t.TempDir())
	defer s.close()
	s.found(log.FeatureVersion)
	before := s.applier.head
	good := encodedChange(t, &log.Change{ID: fixedID(1), Time: baseTime, Ops: []log.Op{changetest.Op(t, asked[0])}, By: log.Author{Role: log.RoleTrusted}})
	for _, raw := range [][]byte{nil, {log.FormatVersion}, []byte("\x01garbage"), good[:len(good)-1], append(good[:len(good):len(good)], 0), make([]byte, log.MaxChangeBytes+1)} {
		if len(raw) > 0 {
			raw[0] = log.FormatVersion
		}
		if readable(raw) == nil {
			t.Errorf("%.20x would be proposed", raw)
		}
		results := s.batch(raw)
		if r := results[0].Refusal; r == nil || r.Code != log.CodeInvalidParameters {
			t.Errorf("%.20x: got %+v", raw, results[0])
		}
	}
	if h := s.applier.head; h.WindowSum != before.WindowSum || h.StateSum != before.StateSum || h.Seq != before.Seq || h.Time != before.Time {
		t.Errorf("they left a trace: %+v, before %+v", h, before)
	}
	if r := s.batch([]byte("\x01garbage"), good); r[0].Refusal == nil || r[1].Refusal != nil {
		t.Errorf("beside a good one: %+v", r)
	}
	if err, ok := s.entry(s.applier.head.Applied+1, batchOf([]byte("\x02newer"))).(error); !ok || !errors.Is(err, log.ErrFormat) {
		t.Errorf("a newer format gave %v", err)
	}
}

// TestEventOverTheLimit: the size of events is decided before they are applied.
func TestEventOverTheLimit(t *testing.T) {
	t.Parallel()
	for _, feature := range []uint32{log.FeatureFirst, log.FeatureContained} {
		file := settledFile(t, feature)
		for n := log.MaxChangeBytes - 200; n < log.MaxChangeBytes-60; n += 5 {
			o := withUnknown(t, &log.VM{Alias: "a", OwnerUUID: fixedID(1)}, n)
			c := &log.Change{ID: fixedID(99), Time: baseTime, Ops: []log.Op{{Action: log.Create, Kind: log.KindVM, Object: o}}, By: log.Author{Role: log.RoleTrusted}}
			raw, err := log.NewEncoder().Change(c)
			if errors.Is(err, log.ErrTooLarge) {
				break
			}
			s := copyOf(t, file)
			seq := s.applier.head.Seq
			r := s.batch(raw)[0]
			limit := "event_bytes"
			if feature >= log.FeatureContained {
				limit = "unknown_bytes"
			}
			if r.Refusal != nil && !strings.Contains(r.Refusal.Error(), limit) || r.Refusal == nil && limit == "unknown_bytes" {
				t.Errorf("version %d, %d bytes: %v", feature, n, r.Refusal)
			}
			if r.Refusal != nil && s.applier.head.Seq != seq {
				t.Errorf("refused, and the head moved from %d to %d", seq, s.applier.head.Seq)
			}
			s.close()
		}
	}
}
