package log

import (
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// TestChangeDecoder: what a decoder read before does not show in what it reads.
func TestChangeDecoder(t *testing.T) {
	names := []string{"alias", "brand", "a", "", "state", fmt.Sprintf("%0*d", maxKeptSet, 7)}
	rapid.Check(t, func(t *rapid.T) {
		var d ChangeDecoder
		enc := NewEncoder()
		var before, want []*Change
		for range rapid.IntRange(1, 30).Draw(t, "changes") {
			c := &Change{ID: UUID{1}, Ops: make([]Op, rapid.IntRange(1, 3).Draw(t, "ops"))}
			for i := range c.Ops {
				set := rapid.SliceOfN(rapid.SampledFrom(names), 0, 4).Draw(t, "set")
				c.Ops[i] = Op{Action: Update, Kind: KindVM, ID: "x", Set: set, Object: &VM{Quota: 7}}
			}
			b, err := enc.Change(c)
			if err != nil {
				t.Fatal(err)
			}
			plain, err := DecodeChange(b)
			if err != nil {
				t.Fatal(err)
			}
			got, err := d.Change(b)
			if err != nil || !reflect.DeepEqual(got, plain) {
				t.Fatalf("decoded %+v, %v, want %+v", got, err, plain)
			}
			before, want = append(before, got), append(want, plain)
		}
		for i := range before {
			if !reflect.DeepEqual(before[i], want[i]) {
				t.Fatalf("change %d became %+v later, want %+v", i, before[i], want[i])
			}
		}
	})
}
