package rules

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/desired"
	"rutter/projections/internal/worldtest"
)

// TestAgainstModel drives random changes against the plain model: the same are
// accepted, with the same objects, addresses, lookups and interest; a CN's
// cache that is fed by the rules of the feed desires the same links; and state
// folded from the log or loaded from records answers alike.
func TestAgainstModel(t *testing.T) {
	accepted, refused := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		w, m := worldtest.New(rt, Decide), newModel()
		feed := newFeed(changetest.UUID(11))
		feed.watch(w)
		m.begin(w)
		m.hear(w.Events, 0)
		for range 1 + worldtest.Even(rt, 60, "changes") {
			ops := make([]log.Op, rapid.SampledFrom([]int{1, 1, 1, 2, 5}).Draw(rt, "ops"))
			for i := range ops {
				ops[i] = worldtest.DrawOp(rt)
				if ops[i].Action != log.Create && worldtest.Even(rt, 6, "if-seq") == 3 {
					ops[i].IfSeq = m.seqs[revKey(ops[i].Kind, ops[i].ID)] + log.Seq(worldtest.Even(rt, 3, "later")/2)
				}
			}
			c := w.Change(ops...)
			from := len(w.Events)
			result := w.Try(c)
			next, ok := m.change(c, result)
			if ok != (result.Refusal == nil) {
				rt.Fatalf("%+v: the model says %v, the state %v", ops, ok, result.Refusal)
			}
			if !ok {
				refused++
				continue
			}
			accepted++
			m = next
			m.hear(w.Events, from)
			m.compare(rt, w.State)
			if int(result.Events) != len(w.Events)-from {
				rt.Fatalf("%d events, the result says %d", len(w.Events)-from, result.Events)
			}
			feed.compare(rt, w.State)
		}
		replayed, loaded := projections.NewState(), projections.NewSmallState()
		encoder := log.NewEncoder()
		for i, e := range w.Events {
			_, body, err := encoder.EventAndBody(e)
			if err != nil {
				rt.Fatal(err)
			}
			if _, err := replayed.ApplyEncoded(log.Seq(i+1), e, body); err != nil {
				rt.Fatal(err)
			}
		}
		worldtest.SameAnswers(rt, replayed, w.State)
		loaded.SetTime(w.State.Time())
		for kind := range log.Kind(20) {
			for r := range w.State.List(kind) {
				if err := loaded.Load(r); err != nil {
					rt.Fatal(err)
				}
			}
		}
		worldtest.SameAnswers(rt, loaded, w.State)
	})
	t.Logf("%d changes accepted, %d refused", accepted, refused)
	if accepted < refused/10 {
		t.Errorf("only %d of %d changes were accepted: the test sees too little", accepted, accepted+refused)
	}
}

// begin sets up what random changes would seldom find together: tags, CNs with
// underlay addresses, VMs, fabrics of two owners and a NIC of each VM.
func (m *model) begin(w *worldtest.World) {
	create := func(o log.Object) {
		c := w.Change(log.Op{Action: log.Create, Kind: o.Kind(), Object: o})
		result := w.Try(c)
		next, ok := m.change(c, result)
		if !ok || result.Refusal != nil {
			w.T.Fatalf("%+v: the model says %v, the state %v", o, ok, result.Refusal)
		}
		*m = *next
	}
	create(&log.NICTag{Name: "one", MTU: 1500})
	create(&log.NICTag{Name: "two", MTU: 2000})
	create(&log.Network{UUID: changetest.UUID(30), Name: "n", NICTag: "one", Subnet: worldtest.Subnets[2]})
	for n := range uint64(2) {
		create(&log.Network{
			UUID: changetest.UUID(31 + n), Name: "n", NICTag: "two", Subnet: worldtest.Subnets[n], Fabric: true,
			VNetID: uint32(10 + 10*n), OwnerUUIDs: []log.UUID{changetest.UUID(1 + n)},
		})
	}
	for n := range uint64(3) {
		create(&log.Server{UUID: changetest.UUID(11 + n)})
		create(&log.VM{UUID: changetest.UUID(21 + n), OwnerUUID: changetest.UUID(1), ServerUUID: changetest.UUID(11 + n), State: "running"})
		create(&log.NIC{
			MAC: log.MAC{5: byte(1 + n)}, BelongsToType: "server", BelongsToUUID: changetest.UUID(11 + n), OwnerUUID: changetest.UUID(1),
			NetworkUUID: changetest.UUID(30), Underlay: true,
		})
		create(&log.NIC{
			MAC: log.MAC{5: byte(4 + n)}, BelongsToType: "zone", BelongsToUUID: changetest.UUID(21 + n), OwnerUUID: changetest.UUID(1 + n%2),
			NetworkUUID: changetest.UUID(31 + n%2),
		})
	}
}

// feed keeps a CN's cache by the rules of architecture section 6 and SAFETY F1, F2.
type feed struct {
	cn    log.UUID
	cache *projections.State
	held  []log.Scope
}

func newFeed(cn log.UUID) *feed {
	return &feed{cn, projections.NewSmallState(), []log.Scope{log.AllScope(), log.CNScope(cn)}}
}

// watch shows the feed each event that w applies.
func (f *feed) watch(w *worldtest.World) {
	w.Seen = func(seq log.Seq, e *log.Event, d projections.Delta) {
		if slices.ContainsFunc(d.Scopes, f.holds) {
			f.hear(w, seq, e)
		}
		for _, g := range d.Gained {
			switch {
			case g.CN == f.cn: // the server adds the scope
				f.held = tidyScopes(append(f.held, g.Scope))
				f.load(w, slices.Collect(w.State.InScope(g.Scope)))
			case g.Scope.Type == log.ScopeVNet && f.holds(g.Scope): // and sends what entered without an event
				f.load(w, slices.Collect(w.State.UnderlayNICs(g.CN)))
			}
		}
		for _, g := range d.Lost {
			if g.CN == f.cn { // the server drops the scope
				f.held = slices.DeleteFunc(f.held, func(scope log.Scope) bool { return scope == g.Scope })
				f.dropOrphans()
			}
		}
	}
}

func (f *feed) holds(scope log.Scope) bool { return slices.Contains(f.held, scope) }

// hear folds an event if it is newer than what is held of its object, and drops what it
// took out of sight: its object, and the underlay NICs of a CN whose last NIC left a vnet.
func (f *feed) hear(w *worldtest.World, seq log.Seq, e *log.Event) {
	held, ok := f.cache.Get(e.Kind, e.ID)
	switch {
	case ok && held.Seq >= seq:
	case e.Action == log.Delete:
		f.cache.Drop(e.Kind, e.ID)
	default:
		f.load(w, []projections.Record{{Object: e.Object, Revision: e.Revision, Seq: seq}})
	}
	f.cache.SetTime(e.Time)
	f.dropOrphans()
}

// dropOrphans drops what belongs to no held scope: what the cache loses with a scope,
// with an object that moved, or with the last NIC of another CN on a vnet.
func (f *feed) dropOrphans() {
	var orphans []log.Object
	for _, kind := range log.Kinds() {
		for r := range f.cache.List(kind) {
			if !slices.ContainsFunc(f.cache.ScopesOf(kind, r.Object.ID()), f.holds) {
				orphans = append(orphans, r.Object)
			}
		}
	}
	for _, o := range orphans {
		f.cache.Drop(o.Kind(), o.ID())
	}
}

func (f *feed) load(w *worldtest.World, records []projections.Record) {
	for _, r := range records {
		if err := f.cache.Load(r); err != nil {
			w.T.Fatal(err)
		}
	}
}

// compare holds the cache against what the server would send of its scopes.
func (f *feed) compare(t changetest.Tester, s *projections.State) {
	if got, want := s.Interest(f.cn), f.held; !slices.Equal(got, want) {
		t.Fatalf("the CN holds %v, its interest is %v", want, got)
	}
	whole := projections.NewState()
	for _, scope := range f.held {
		if got, want := f.cache.Digest(scope), s.Digest(scope); got != want {
			t.Fatalf("digest of %s is %s in the CN's cache, %s in the whole state", scope, got, want)
		}
		worldtest.SameDigest(t, s, scope)
		worldtest.SameDigest(t, f.cache, scope)
		for r := range s.InScope(scope) {
			if err := whole.Load(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, got, _ := bytes.Cut(f.cache.Dump(), []byte("\n")) // less the time
	_, want, _ := bytes.Cut(whole.Dump(), []byte("\n"))
	if !bytes.Equal(got, want) {
		t.Fatalf("the CN's cache is\n%s\nwant\n%s\nholding %v", got, want, f.held)
	}
	worldtest.SameDesired(t, desired.Of(f.cache, f.cn), desired.Of(s, f.cn))
}
