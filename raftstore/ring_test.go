package raftstore

import (
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
)

// TestRingModel compares the ring with a slice.
func TestRingModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := ring{maxEntries: 2000, maxBytes: 1 << 20}
		base := log.Seq(rapid.IntRange(0, 5000).Draw(t, "base"))
		r.reset(base)
		head, durable := base, base
		for range rapid.IntRange(1, 30).Draw(t, "rounds") {
			for range rapid.IntRange(0, 500).Draw(t, "pushes") {
				head++
				s := slot{}
				s.Seq, s.Bytes = head, []byte{byte(head)}
				r.push(s, durable)
			}
			if r.first > durable+1 {
				t.Fatalf("the ring begins at %d and only %d is durable", r.first, durable)
			}
			if r.first+log.Seq(r.n) != head+1 {
				t.Fatalf("the ring ends at %d, want %d", r.first+log.Seq(r.n)-1, head)
			}
			durable += log.Seq(rapid.Uint64Range(0, uint64(head-durable)).Draw(t, "synced"))
			if r.n == 0 {
				continue
			}
			c := collector{max: 10_000}
			r.read(r.first-1, &c)
			for i, e := range c.result() {
				if e.Seq != r.first+log.Seq(i) || e.Bytes[0] != byte(e.Seq) {
					t.Fatalf("entry %d in place of %d", e.Seq, r.first+log.Seq(i))
				}
			}
			if len(c.result()) != r.n {
				t.Fatalf("read %d of %d", len(c.result()), r.n)
			}
		}
	})
}
