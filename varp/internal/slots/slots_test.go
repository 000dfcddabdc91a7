package slots

import (
	"testing"

	"pgregory.net/rapid"
)

// TestSlots compares the table with a map, with a hash that collides much.
func TestSlots(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		buckets := rapid.SampledFrom([]uint64{1, 3, 60, 1 << 20}).Draw(t, "buckets")
		s := New[int, int](func(k int) uint64 { return (uint64(k) * 0x9e3779b9) % buckets })
		want := map[int]int{}
		for i := range rapid.IntRange(0, 300).Draw(t, "steps") {
			k := rapid.IntRange(1, 120).Draw(t, "key")
			if rapid.Bool().Draw(t, "put") {
				s.Put(k, i)
				want[k] = i
			} else {
				s.Remove(k)
				delete(want, k)
			}
		}
		if s.n != len(want) {
			t.Fatalf("%d held, want %d", s.n, len(want))
		}
		free, at := 0, make([]uint32, 0, 120)
		for k := 1; k <= 120; k++ {
			if slot := s.Slot(k); s.rows[slot].key == 0 {
				free++
			}
			at = append(at, s.Slot(k))
		}
		if touched := s.Touch(append(at, 1<<31)); touched != free {
			t.Fatalf("%d of the touched slots are free, want %d", touched, free)
		}
		for k := 1; k <= 120; k++ {
			got, ok := s.Get(k)
			if w, has := want[k]; ok != has || got != w {
				t.Fatalf("%d: %d, %v, want %d, %v", k, got, ok, w, has)
			}
		}
	})
}

// BenchmarkGetMillion looks up a million rows in an order without locality, with the
// rows on large pages, as in use, and on small ones.
func BenchmarkGetMillion(b *testing.B) {
	const rows = 1 << 20
	for _, pages := range []string{"large", "small"} {
		b.Run(pages, func(b *testing.B) {
			s := New[uint64, uint64](func(k uint64) uint64 { return k * 0x9e3779b97f4a7c15 >> 20 })
			if pages == "small" {
				s.hint = func([]slot[uint64, uint64]) {}
			}
			for k := uint64(1); k <= rows; k++ {
				s.Put(k, k)
			}
			k := uint64(0)
			for b.Loop() {
				k = k*6364136223846793005 + 1442695040888963407
				if _, ok := s.Get(k>>40&(rows-1) + 1); !ok {
					b.Fatal("a row is missing")
				}
			}
		})
	}
}
