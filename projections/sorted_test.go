package projections

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

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
