package projections

import (
	"testing"

	"rutter/log"
)

// sameDigest holds the digest that was kept against one that is made anew.
func sameDigest(t tester, s *State, scope log.Scope) {
	t.Helper()
	var want log.Digest
	for r := range s.InScope(scope) {
		want = want.Add(newDigests().of(&r))
	}
	if got := s.Digest(scope); got != want {
		t.Fatalf("digest of %s is %s, of its objects %s", scope, got, want)
	}
}

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
}
