package projections

import (
	"testing"

	"rutter/log"
)

// What differs in nothing but one field or the revision has another digest.
func TestDigestTellsApart(t *testing.T) {
	digest := func(r Record) log.Digest {
		s := NewState()
		if err := s.Load(r); err != nil {
			t.Fatal(err)
		}
		return s.Digest(log.AllScope())
	}
	first := Record{Object: &log.NICTag{Name: "a", MTU: 1500}, Revision: 1, Seq: 1}
	seen := map[log.Digest]bool{{}: true, digest(first): true}
	for _, r := range []Record{
		{Object: &log.NICTag{Name: "a", MTU: 1501}, Revision: 1, Seq: 1},
		{Object: &log.NICTag{Name: "b", MTU: 1500}, Revision: 1, Seq: 1},
		{Object: &log.NICTag{Name: "a", MTU: 1500}, Revision: 2, Seq: 1},
	} {
		if seen[digest(r)] {
			t.Errorf("%+v has the digest of another", r)
		}
		seen[digest(r)] = true
	}
	s := NewState()
	if err := s.Load(first); err != nil {
		t.Fatal(err)
	}
	s.Drop(log.KindNICTag, "a")
	if got := s.Digest(log.AllScope()); got != (log.Digest{}) {
		t.Errorf("digest of nothing is %s", got)
	}
	if got := s.Sum(); got != (log.Digest{}) {
		t.Errorf("sum of nothing is %s", got)
	}
}

// Two objects whose seqs changed places give another sum, though the same digests.
func TestSumTellsSeqs(t *testing.T) {
	sums := make(map[log.Digest]bool)
	for _, seqs := range [][2]log.Seq{{1, 2}, {2, 1}, {1, 3}} {
		s := NewState()
		for i, seq := range seqs {
			if err := s.Load(Record{Object: &log.NICTag{Name: string(rune('a' + i)), MTU: 1500}, Revision: 1, Seq: seq}); err != nil {
				t.Fatal(err)
			}
		}
		sums[s.Sum()] = true
	}
	if len(sums) != 3 {
		t.Errorf("%d sums of 3 states", len(sums))
	}
}
