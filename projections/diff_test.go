package projections

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
)

// TestDiffRecords: what the difference says, done to the state before, gives the
// state after; and of one with itself there is none.
func TestDiffRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		states := [2]*State{NewState(), NewState()}
		for _, s := range states {
			for i := range rapid.IntRange(0, 8).Draw(t, "objects") {
				tag := &log.NICTag{Name: string(rune('a' + rapid.IntRange(0, 9).Draw(t, "name"))), MTU: uint32(1500 + i)}
				revision := log.Revision(rapid.IntRange(1, 3).Draw(t, "revision"))
				if err := s.Load(Record{Object: tag, Revision: revision, Seq: log.Seq(10*int(revision) + int(tag.MTU))}); err != nil {
					t.Fatal(err)
				}
			}
		}
		before, after := states[0], states[1]
		if same := DiffRecords(after.List(log.KindNICTag), after.List(log.KindNICTag)); len(same) > 0 {
			t.Fatalf("of one with itself: %+v", same)
		}
		changes := DiffRecords(before.List(log.KindNICTag), after.List(log.KindNICTag))
		if !slices.IsSortedFunc(changes, func(a, b ObjectChange) int { return int(a.ID[0]) - int(b.ID[0]) }) {
			t.Fatalf("not sorted: %+v", changes)
		}
		for _, c := range changes {
			if c.After == nil {
				before.Drop(c.Kind, c.ID)
			} else if err := before.Load(*c.After); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := string(before.Dump()), string(after.Dump()); got != want {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
	})
}
