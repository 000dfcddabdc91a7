package projections

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
)

// TestRowTable compares the table with a map, whatever is added and removed.
func TestRowTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Hashes that share many bits lengthen chains, and split again and again.
		spread := rapid.SampledFrom([]uint64{1, 1 << 30, 1 << 54, 0x9e3779b97f4a7c15}).Draw(t, "spread")
		numbers := make(map[*row]uint64)
		table := rowTable{hash: func(r *row) uint64 { return numbers[r] * spread }}
		known := make(map[uint64]*row)
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			from, many := rapid.Uint64Range(0, 1500).Draw(t, "from"), rapid.Uint64Range(1, 1200).Draw(t, "many")
			adds := rapid.Bool().Draw(t, "adds")
			for i := from; i < from+many; i++ {
				same := func(r *row) bool { return numbers[r] == i }
				if old := known[i]; !adds {
					if got := old != nil && table.remove(old); got != (old != nil) {
						t.Fatalf("remove of %d: %t", i, got)
					}
					delete(known, i)
					continue
				}
				r := new(row)
				numbers[r], known[i] = i, r
				table.put(r, same)
			}
			if table.n != len(known) {
				t.Fatalf("%d rows, want %d", table.n, len(known))
			}
			for i := range uint64(2700) {
				if got := table.find(i*spread, func(r *row) bool { return numbers[r] == i }); got != known[i] {
					t.Fatalf("row %d is %p, want %p", i, got, known[i])
				}
			}
		}
	})
}

// TestRowTableGrowsInParts: adding a row moves at most those of one part.
func TestRowTableGrowsInParts(t *testing.T) {
	moved := 0
	number := make(map[*row]uint64)
	table := rowTable{hash: func(r *row) uint64 { moved++; return mix(number[r]) }}
	for i := range uint64(100_000) {
		r := new(row)
		number[r] = i
		moved = 0
		table.add(r)
		if moved > maxRowSlots {
			t.Fatalf("row %d: %d rows were moved, want at most %d", i, moved, maxRowSlots)
		}
	}
	slots := 0
	for _, p := range table.parts {
		slots += len(p.slots) >> (table.depth - p.depth)
	}
	if slots > 3*table.n {
		t.Errorf("%d places for %d rows", slots, table.n)
	}
}

// TestRowTableOfEqualHashes: hashes that no bit tells apart end no search early.
func TestRowTableOfEqualHashes(t *testing.T) {
	table := rowTable{hash: func(*row) uint64 { return 7 << 40 }}
	var rows []*row
	for range 2 * maxRowSlots {
		r := new(row)
		rows = append(rows, r)
		table.add(r)
	}
	for i, r := range rows {
		if table.find(7<<40, func(other *row) bool { return other == r }) != r {
			t.Fatalf("row %d is not found", i)
		}
	}
	for i, r := range rows {
		if !table.remove(r) {
			t.Fatalf("row %d is not removed", i)
		}
	}
	if table.n != 0 {
		t.Errorf("%d rows are left", table.n)
	}
}

// BenchmarkLookupByKey measures a lookup by key among many.
func BenchmarkLookupByKey(b *testing.B) {
	s := NewState()
	const tags = 100_000
	for i := range tags {
		if err := s.Load(Record{Object: &log.NICTag{Name: fmt.Sprintf("tag%d", i), MTU: 1500}, Revision: 1, Seq: log.Seq(i + 1)}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if _, ok := s.Get(log.KindNICTag, fmt.Sprintf("tag%d", i%tags)); !ok {
			b.Fatal("not found")
		}
	}
}
