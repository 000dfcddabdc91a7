package projections

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
)

// applyDelta does to a Desired what the kernel's side does with a LinksDelta.
func applyDelta(w *Desired, d LinksDelta) {
	w.Neighs = slices.DeleteFunc(w.Neighs, func(n Neigh) bool {
		is := func(o Neigh) bool { return o.Link == n.Link && o.IP == n.IP }
		return slices.ContainsFunc(d.NoNeighs, is) || slices.ContainsFunc(d.Neighs, is)
	})
	w.FDB = slices.DeleteFunc(w.FDB, func(f FDB) bool {
		is := func(o FDB) bool { return o.VNet == f.VNet && o.MAC == f.MAC }
		return slices.ContainsFunc(d.NoFDB, is) || slices.ContainsFunc(d.FDB, is)
	})
	p := planner{want: Desired{Neighs: append(w.Neighs, d.Neighs...), FDB: append(w.FDB, d.FDB...)}}
	p.sort()
	w.Neighs, w.FDB = slices.Compact(p.want.Neighs), slices.Compact(p.want.FDB)
}

// TestDeltaIsTheWholesDifference: after any changes, what was noted of them
// makes the earlier desired links those of now, unless they say of themselves
// that only the whole will do.
func TestDeltaIsTheWholesDifference(t *testing.T) {
	covered := 0
	rapid.Check(t, func(t *rapid.T) {
		w := settled(t)
		cns := []log.UUID{id(11), id(12), id(13)}
		held, touches := map[log.UUID]Desired{}, map[log.UUID]*Touches{}
		for _, cn := range cns {
			held[cn], touches[cn] = w.s.DesiredLinks(cn), NewTouches(cn)
			touches[cn].Reset()
		}
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			op := drawOp(t)
			key := op.ID
			before, _ := w.s.Get(op.Kind, key)
			result := w.try(w.change(op))
			if result.Refusal != nil {
				continue
			}
			for _, id := range result.IDs {
				after, _ := w.s.Get(op.Kind, id)
				for _, cn := range cns {
					touches[cn].Note(before.Object, after.Object)
				}
			}
			for _, cn := range cns {
				if rapid.Bool().Draw(t, "later") {
					continue // notes of several changes are covered together
				}
				want := w.s.DesiredLinks(cn)
				want.Problems = nil
				if touches[cn].Whole() {
					held[cn] = want
					touches[cn].Reset()
					continue
				}
				had := held[cn]
				had.Problems = nil
				applyDelta(&had, touches[cn].Delta(w.s))
				sameDesired(t, had, want)
				held[cn] = had
				covered++
			}
		}
	})
	if covered == 0 {
		t.Error("no change was covered by a delta")
	}
}
