package window

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"rutter/log"
)

// TestWindowModel, below log.FeatureContained, compares the window with a naive one: whatever comes, an id
// is answered from the window, refused, or truly new; and it has the results that
// are not stored.
func TestWindowModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const second = int64(time.Second)
		w := New(10*time.Second, 4, log.UUID{})
		done, at := make(map[log.UUID]bool), make(map[log.UUID]uint64)
		index, stored := uint64(0), uint64(0)
		now := 100 * second
		for range rapid.IntRange(1, 60).Draw(t, "changes") {
			now += rapid.Int64Range(0, 2).Draw(t, "step") * second
			ms := now/int64(time.Millisecond) - 1000*rapid.Int64Range(-2, 14).Draw(t, "age")
			id := NewID(time.UnixMilli(ms))
			for i := 7; i < 16; i++ {
				id[i] = byte(rapid.IntRange(0, 1).Draw(t, "random"))
			}
			w.Advance(log.Time(now))
			_, known := w.known[id]
			refusal := w.Check(id, log.Asker{}, log.Time(now))
			if known {
				if !done[id] {
					t.Fatalf("%s is known and was never added", id)
				}
				continue
			}
			if refusal != nil {
				continue
			}
			if done[id] {
				t.Fatalf("%s would be applied twice", id)
			}
			index++
			w.Add(id, []byte{byte(index)}, index)
			done[id], at[id] = true, index
			if held := w.authors.all[0].ids; len(w.known) > 4 || len(w.known) != len(held) {
				t.Fatalf("window holds %d results and %d ids, want at most 4 of both", len(w.known), len(held))
			}
			stored = max(stored, index-min(index, rapid.Uint64Range(0, 3).Draw(t, "lag")))
			w.Settle(stored)
			for id, index := range w.known {
				result, fresh := w.Result(&w.ids[index])
				if fresh == (at[id] <= stored) || fresh && result[0] != byte(at[id]) {
					t.Fatalf("a result of index %d with %d stored: in memory is %t, %v", at[id], stored, fresh, result)
				}
			}
			if len(w.fresh) > 3 {
				t.Fatalf("%d results are kept of %d changes", len(w.fresh), len(w.known))
			}
		}
	})
}
