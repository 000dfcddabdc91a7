package desired_test

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/desired"
	"rutter/projections/internal/worldtest"
	"rutter/projections/rules"
)

// applyDelta does to a desired.Links what the kernel's side does with a LinksDelta.
func applyDelta(w *desired.Links, d desired.LinksDelta) {
	if d.Part != nil {
		d.Part.Merge(w)
	}
	w.Neighs = slices.DeleteFunc(w.Neighs, func(n desired.Neigh) bool {
		is := func(o desired.Neigh) bool { return o.Link == n.Link && o.IP == n.IP }
		return slices.ContainsFunc(d.NoNeighs, is) || slices.ContainsFunc(d.Neighs, is)
	})
	w.FDB = slices.DeleteFunc(w.FDB, func(f desired.FDB) bool {
		is := func(o desired.FDB) bool { return o.VNet == f.VNet && o.MAC == f.MAC }
		return slices.ContainsFunc(d.NoFDB, is) || slices.ContainsFunc(d.FDB, is)
	})
	w.Peers = slices.DeleteFunc(w.Peers, func(r desired.Peer) bool { return slices.Contains(d.NoPeers, r) || slices.Contains(d.Peers, r) })
	w.Peers = append(w.Peers, d.Peers...)
	slices.SortFunc(w.Peers, func(a, b desired.Peer) int { return cmp.Or(cmp.Compare(a.VNet, b.VNet), a.Addr.Compare(b.Addr)) })
	neighs, fdb := append(w.Neighs, d.Neighs...), append(w.FDB, d.FDB...)
	slices.SortFunc(neighs, func(a, b desired.Neigh) int {
		return cmp.Or(a.Link.Compare(b.Link), a.IP.Compare(b.IP))
	})
	slices.SortFunc(fdb, func(a, b desired.FDB) int {
		return cmp.Or(cmp.Compare(a.VNet, b.VNet), a.MAC.Compare(b.MAC))
	})
	w.Neighs, w.FDB = slices.Compact(neighs), slices.Compact(fdb)
}

// noteEvents notes each event, also those of the other objects that a change concerns: a
// NIC that becomes primary takes that from another one.
func noteEvents(w *worldtest.World, touches map[log.UUID]*desired.Touches) {
	objects := map[string]log.Object{} // as of before, by kind and id
	for _, kind := range log.Kinds() {
		for r := range w.State.List(kind) {
			objects[kind.String()+r.Object.ID()] = r.Object
		}
	}
	w.Seen = func(_ log.Seq, e *log.Event, _ projections.Delta) {
		key, after := e.Kind.String()+e.ID, e.Object
		if e.Action == log.Delete {
			after = nil
		}
		for _, t := range touches {
			t.Note(objects[key], after)
		}
		objects[key] = after
	}
}

// TestDeltaIsTheWholesDifference: after any changes, what was noted of them
// makes the earlier desired links those of now, unless they say of themselves
// that only the whole will do.
func TestDeltaIsTheWholesDifference(t *testing.T) {
	covered, parts := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := worldtest.Settled(t, rules.Decide)
		cns := []log.UUID{changetest.UUID(11), changetest.UUID(12), changetest.UUID(13)}
		held, touches := map[log.UUID]desired.Links{}, map[log.UUID]*desired.Touches{}
		for _, cn := range cns {
			held[cn], touches[cn] = desired.Of(w.State, cn), desired.NewTouches(cn)
			touches[cn].Reset()
			first := held[cn]
			touches[cn].Given(&first)
		}
		noteEvents(w, touches)
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			if result := w.Try(w.Change(worldtest.DrawOp(t))); result.Refusal != nil {
				continue
			}
			for _, cn := range cns {
				if rapid.Bool().Draw(t, "later") {
					continue // notes of several changes are covered together
				}
				given := desired.Of(w.State, cn)
				want := given
				want.Problems = nil
				if touches[cn].Whole() {
					held[cn] = want
					touches[cn].Reset()
					touches[cn].Given(&given)
					continue
				}
				had := held[cn]
				had.Problems = nil
				d := touches[cn].Delta(w.State)
				applyDelta(&had, d)
				worldtest.SameDesired(t, had, want)
				held[cn] = had
				covered++
				if d.Part != nil {
					parts++
				}
			}
		}
	})
	if covered == 0 || parts == 0 {
		t.Errorf("covered by deltas: %d changes, of these %d of own NICs, want some of each", covered, parts)
	}
}
