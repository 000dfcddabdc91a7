package projections_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/internal/worldtest"
	"rutter/projections/rules"
)

func TestLookups(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	mac := log.MAC{0, 0, 0, 0, 2, 1}
	want := projections.Underlay{CN: changetest.UUID(12), Addr: netip.MustParseAddr("192.168.0.3"), Port: 4789}
	if got, ok := w.State.VL2(10, mac); !ok || got != want {
		t.Errorf("VL2 gave %v, %v; want %v", got, ok, want)
	}
	for _, ip := range []string{"10.0.0.4", "::ffff:10.0.0.4"} {
		if m, got, ok := w.State.VL3(10, netip.MustParseAddr(ip)); !ok || got != want || m != mac {
			t.Errorf("VL3 of %s gave %v, %v, %v; want %v, %v", ip, m, got, ok, mac, want)
		}
	}
	if _, ok := w.State.VL2(20, mac); ok {
		t.Error("VL2 found a MAC on another vnet")
	}
	if _, _, ok := w.State.VL3(20, netip.MustParseAddr("10.0.0.4")); ok {
		t.Error("VL3 found an address on another vnet")
	}
	// Of two underlay NICs with an address the lower MAC counts.
	w.Must(`create nic {"mac": "000000000001", "belongs_to_type": "server", "belongs_to_uuid": "#12#", "owner_uuid": "#1#", "underlay": true}`)
	if got, _ := w.State.VL2(10, mac); got != want {
		t.Errorf("with an underlay NIC that has no address VL2 gave %v, want %v", got, want)
	}
	w.Must(`update nic 000000000001 {"network_uuid": "#30#", "ip": "192.168.0.99"}`)
	if got, _ := w.State.VL2(10, mac); got.Addr != netip.MustParseAddr("192.168.0.99") {
		t.Errorf("VL2 gave %v, want the NIC of the lowest MAC", got)
	}
	w.Must(`delete nic 000000000001`, `delete nic 00:00:00:00:01:01`)
	if got, ok := w.State.VL2(10, mac); ok {
		t.Errorf("without an underlay NIC VL2 gave %v", got)
	}
	if _, got, ok := w.State.VL3(10, netip.MustParseAddr("10.0.0.4")); ok {
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
		w := worldtest.Settled(t, rules.Decide)
		before := string(w.State.Dump())
		if _, err := w.State.Apply(c.seq, c.e); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
		if string(w.State.Dump()) != before {
			t.Errorf("%s: the state changed", c.name)
		}
	}
}

func TestUnknownKindsAreCarried(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	o := &log.Unknown{OfKind: 99, Key: "thing"}
	e := &log.Event{Kind: 99, Action: log.Create, ID: "thing", Revision: 1, Object: o}
	if _, err := w.State.Apply(100, e); err != nil {
		t.Fatal(err)
	}
	if r, ok := w.State.Get(99, "thing"); !ok || r.Object != o || w.State.Count(99) != 1 {
		t.Errorf("got %+v, %v", r, ok)
	}
	if !strings.Contains(string(w.State.Dump()), "kind(99) thing rev=1 seq=100 bytes=") {
		t.Errorf("the dump lacks it:\n%s", w.State.Dump())
	}
	if err := w.State.Load(projections.Record{Object: &log.Unknown{OfKind: log.KindNIC, Key: "x"}}); !errors.Is(err, log.ErrCorrupt) {
		t.Errorf("a NIC that was not decoded was loaded: %v", err)
	}
}

// TestLoadInAnyOrder: a cache may hold NICs before their network.
func TestLoadInAnyOrder(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	rapid.Check(t, func(rt *rapid.T) {
		var all []projections.Record
		for kind := range log.Kind(20) {
			all = slices.AppendSeq(all, w.State.List(kind))
		}
		cache := projections.NewSmallState()
		cache.SetTime(w.State.Time())
		for _, r := range rapid.Permutation(all).Draw(rt, "order") {
			if err := cache.Load(r); err != nil {
				rt.Fatal(err)
			}
		}
		worldtest.SameAnswers(rt, cache, w.State)
		// Out and in again, network before its NICs.
		r, _ := cache.Get(log.KindNetwork, changetest.UUID(31).String())
		cache.Drop(log.KindNetwork, changetest.UUID(31).String())
		if _, ok := cache.VL2(10, log.MAC{0, 0, 0, 0, 2, 1}); ok {
			rt.Fatal("VL2 answers for a network that is not held")
		}
		if err := cache.Load(r); err != nil {
			rt.Fatal(err)
		}
		worldtest.SameAnswers(rt, cache, w.State)
		cache.Drop(log.KindNetwork, "nonsense")
		cache.Drop(log.KindNetwork, changetest.UUID(88).String())
	})
}
