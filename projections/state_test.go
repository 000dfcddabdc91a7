package projections

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func TestLookups(t *testing.T) {
	w := settled(t)
	mac := log.MAC{0, 0, 0, 0, 2, 1}
	want := Underlay{CN: id(12), Addr: addr("192.168.0.3"), Port: 4789}
	if got, ok := w.s.VL2(10, mac); !ok || got != want {
		t.Errorf("VL2 gave %v, %v; want %v", got, ok, want)
	}
	for _, ip := range []string{"10.0.0.4", "::ffff:10.0.0.4"} {
		if m, got, ok := w.s.VL3(10, addr(ip)); !ok || got != want || m != mac {
			t.Errorf("VL3 of %s gave %v, %v, %v; want %v, %v", ip, m, got, ok, mac, want)
		}
	}
	if _, ok := w.s.VL2(20, mac); ok {
		t.Error("VL2 found a MAC on another vnet")
	}
	if _, _, ok := w.s.VL3(20, addr("10.0.0.4")); ok {
		t.Error("VL3 found an address on another vnet")
	}
	// Of two underlay NICs with an address the lower MAC counts.
	w.must(`create nic {"mac": "000000000001", "belongs_to_type": "server", "belongs_to_uuid": "#12#", "owner_uuid": "#1#", "underlay": true}`)
	if got, _ := w.s.VL2(10, mac); got != want {
		t.Errorf("with an underlay NIC that has no address VL2 gave %v, want %v", got, want)
	}
	w.must(`update nic 000000000001 {"network_uuid": "#30#", "ip": "192.168.0.99"}`)
	if got, _ := w.s.VL2(10, mac); got.Addr != addr("192.168.0.99") {
		t.Errorf("VL2 gave %v, want the NIC of the lowest MAC", got)
	}
	w.must(`delete nic 000000000001`, `delete nic 00:00:00:00:01:01`)
	if got, ok := w.s.VL2(10, mac); ok {
		t.Errorf("without an underlay NIC VL2 gave %v", got)
	}
	if _, got, ok := w.s.VL3(10, addr("10.0.0.4")); ok {
		t.Errorf("without an underlay NIC VL3 gave %v", got)
	}
}

func TestApplyRefusesWhatDoesNotFit(t *testing.T) {
	tag := &log.NICTag{Name: "external", MTU: 1500}
	event := func(action log.Action, rev log.Revision, o log.Object) *log.Event {
		return &log.Event{Kind: log.KindNICTag, Action: action, ID: "external", Revision: rev, Object: o}
	}
	cases := []struct {
		name string
		seq  log.Seq
		e    *log.Event
		want error
	}{
		{"create of what is there", 9, event(log.Create, 1, tag), log.ErrCorrupt},
		{"gap of revisions", 9, event(log.Update, 3, tag), log.ErrCorrupt},
		{"old seq", 1, event(log.Update, 2, tag), log.ErrCorrupt},
		{"no object", 9, event(log.Update, 2, nil), log.ErrCorrupt},
		{"other object", 9, event(log.Update, 2, &log.NICTag{Name: "other"}), log.ErrCorrupt},
		{"undecoded object", 9, event(log.Update, 2, &log.Unknown{OfKind: log.KindNICTag, Key: "external"}), log.ErrCorrupt},
		{"unknown action", 9, event(7, 2, tag), log.ErrFormat},
		{"missing", 9, &log.Event{Kind: log.KindNICTag, Action: log.Update, ID: "x", Revision: 1, Object: &log.NICTag{Name: "x"}}, log.ErrCorrupt},
	}
	for _, c := range cases {
		w := settled(t)
		before := string(w.s.Dump())
		if _, err := w.s.Apply(c.seq, c.e); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
		if string(w.s.Dump()) != before {
			t.Errorf("%s: the state changed", c.name)
		}
	}
}

func TestUnknownKindsAreCarried(t *testing.T) {
	w := settled(t)
	o := &log.Unknown{OfKind: 99, Key: "thing"}
	e := &log.Event{Kind: 99, Action: log.Create, ID: "thing", Revision: 1, Object: o}
	if _, err := w.s.Apply(100, e); err != nil {
		t.Fatal(err)
	}
	if r, ok := w.s.Get(99, "thing"); !ok || r.Object != o || w.s.Count(99) != 1 {
		t.Errorf("got %+v, %v", r, ok)
	}
	if !strings.Contains(string(w.s.Dump()), "kind(99) thing rev=1 seq=100 bytes=") {
		t.Errorf("the dump lacks it:\n%s", w.s.Dump())
	}
	if got := w.s.Orphans(nil); slices.ContainsFunc(got, func(r Record) bool { return r.Object == o }) {
		t.Error("an object of an unknown kind is called an orphan")
	}
	if err := w.s.Load(Record{Object: &log.Unknown{OfKind: log.KindNIC, Key: "x"}}); !errors.Is(err, log.ErrCorrupt) {
		t.Errorf("a NIC that was not decoded was loaded: %v", err)
	}
}

func TestFoldTakesOnlyNewer(t *testing.T) {
	w := settled(t)
	cache := NewSmallState()
	for i, e := range w.events {
		for range 2 { // the second time each is old
			if _, err := cache.Fold(log.Seq(i+1), e); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, want := string(cache.Dump()), string(w.s.Dump()); got != want {
		t.Errorf("folded\n%s\nwant\n%s", got, want)
	}
	// An update brings an object in, a delete of what is not held is nothing.
	late := NewSmallState()
	w.must(`update nic 00:00:00:00:02:00 {"state": "running"}`)
	update := w.events[len(w.events)-1]
	if _, err := late.Fold(50, update); err != nil {
		t.Fatal(err)
	}
	if r, ok := late.Get(log.KindNIC, update.ID); !ok || r.Revision != 2 || r.Seq != 50 {
		t.Errorf("got %+v, %v", r, ok)
	}
	gone := *update
	gone.Action, gone.ID, gone.Object = log.Delete, "00:00:00:00:00:07", &log.NIC{MAC: log.MAC{5: 7}}
	if d, err := late.Fold(51, &gone); err != nil || d.Scopes != nil {
		t.Errorf("deleting what is not held gave %+v, %v", d, err)
	}
	if _, err := late.Fold(52, &log.Event{Kind: log.KindNIC}); !errors.Is(err, log.ErrCorrupt) {
		t.Errorf("an event without an object gave %v", err)
	}
}

// TestLoadInAnyOrder: a cache may hold NICs before their network.
func TestLoadInAnyOrder(t *testing.T) {
	w := settled(t)
	rapid.Check(t, func(rt *rapid.T) {
		var all []Record
		for kind := range log.Kind(20) {
			all = slices.AppendSeq(all, w.s.List(kind))
		}
		cache := NewSmallState()
		cache.SetTime(w.s.Time())
		for _, r := range rapid.Permutation(all).Draw(rt, "order") {
			if err := cache.Load(r); err != nil {
				rt.Fatal(err)
			}
		}
		sameAnswers(rt, cache, w.s)
		// Out and in again, network before its NICs.
		r, _ := cache.Get(log.KindNetwork, id(31).String())
		cache.Drop(log.KindNetwork, id(31).String())
		if _, ok := cache.VL2(10, log.MAC{0, 0, 0, 0, 2, 1}); ok {
			rt.Fatal("VL2 answers for a network that is not held")
		}
		if err := cache.Load(r); err != nil {
			rt.Fatal(err)
		}
		sameAnswers(rt, cache, w.s)
		cache.Drop(log.KindNetwork, "nonsense")
		cache.Drop(log.KindNetwork, id(88).String())
	})
}

func TestSortedAndSpans(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		set, model := newSpans(), map[netip.Addr]bool{}
		base := rapid.SampledFrom([]netip.Addr{addr("10.0.0.0"), addr("255.255.255.200"), addr("fd00::ff00")}).Draw(rt, "base")
		at := make([]netip.Addr, 56)
		for i := range at {
			at[i], base = base, base.Next()
		}
		for _, step := range rapid.SliceOfN(rapid.IntRange(0, 2*len(at)-1), 0, 300).Draw(rt, "steps") {
			ip := at[step/2]
			if step%2 == 0 {
				set.add(ip)
				model[ip] = true
			} else {
				set.remove(ip)
				delete(model, ip)
			}
			want := at[0]
			for model[want] {
				want = want.Next()
			}
			if got := set.free(at[0]); got != want {
				rt.Fatalf("the lowest free address is %s, want %s", got, want)
			}
		}
		var last netip.Addr
		for r := range set.runs.all() {
			if r.hi.Less(r.lo) || last.IsValid() && !last.Next().Less(r.lo) {
				rt.Fatalf("run %v follows %s", r, last)
			}
			last = r.hi
		}
	})
}

func TestSortedOfManyChunks(t *testing.T) {
	set := newSorted(func(a, b int) int { return a - b })
	const n = 20 * maxChunk
	for i := range n {
		set.insert(i * 7919 % n) // every number once, in a mixed order
	}
	if got := slices.Collect(set.all()); !slices.IsSorted(got) || len(got) != n || set.len() != n {
		t.Fatalf("%d items, sorted %v, want %d", len(got), slices.IsSorted(got), n)
	}
	for i := 0; i < n; i += 2 {
		set.remove(i)
	}
	if below, ok := set.below(1001); !ok || below != 999 {
		t.Errorf("below 1001 is %d, %v", below, ok)
	}
	for x := range set.from(1000) {
		if x != 1001 {
			t.Errorf("from 1000 begins with %d", x)
		}
		break
	}
	for i := 1; i < n; i += 2 {
		set.remove(i)
	}
	if set.len() != 0 || len(set.chunks) != 0 {
		t.Errorf("%d items in %d chunks are left", set.len(), len(set.chunks))
	}
}
