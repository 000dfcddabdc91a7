package changesdb

import (
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
)

// TestRingModel compares the ring with a slice.
func TestRingModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := Ring{MaxEntries: rapid.IntRange(1, 2000).Draw(t, "most"), MaxBytes: rapid.IntRange(1, 2000).Draw(t, "bytes")}
		base := log.Seq(rapid.IntRange(0, 5000).Draw(t, "base"))
		r.Reset(base)
		head, durable := base, base
		for range rapid.IntRange(1, 30).Draw(t, "rounds") {
			for range rapid.IntRange(0, 500).Draw(t, "pushes") {
				head++
				s := Slot{}
				s.Seq, s.Bytes = head, []byte{byte(head)}
				r.Push(s, durable)
			}
			if r.First > durable+1 {
				t.Fatalf("the ring begins at %d and only %d is durable", r.First, durable)
			}
			if r.First+log.Seq(r.n) != head+1 {
				t.Fatalf("the ring ends at %d, want %d", r.First+log.Seq(r.n)-1, head)
			}
			durable += log.Seq(rapid.Uint64Range(0, uint64(head-durable)).Draw(t, "synced"))
			if r.n == 0 {
				continue
			}
			c := Collector{Max: 10_000}
			r.Read(r.First-1, &c)
			for i, e := range c.Result() {
				if e.Seq != r.First+log.Seq(i) || e.Bytes[0] != byte(e.Seq) {
					t.Fatalf("entry %d in place of %d", e.Seq, r.First+log.Seq(i))
				}
			}
			if len(c.Result()) != r.n {
				t.Fatalf("read %d of %d", len(c.Result()), r.n)
			}
		}
	})
}
