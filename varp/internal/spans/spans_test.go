package spans

import (
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
)

// TestSet: a Set never loses a number that was added and not cut, has at most Max
// spans, and says of each span only what is true. The seq of a number is half of it.
func TestSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Set
		model := map[uint64]bool{}
		const top = 60
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			lo := rapid.Uint64Range(0, top).Draw(t, "lo")
			hi := rapid.Uint64Range(0, top).Draw(t, "hi")
			add := rapid.Bool().Draw(t, "add")
			if add {
				s.Add(Span{lo, hi, log.Seq(lo / 2)})
			} else {
				s.Cut(lo, hi, log.Seq(hi/2))
			}
			for n := lo + 1; n <= hi; n++ {
				model[n] = add
			}
		}
		for n := range uint64(top + 2) {
			if model[n] && !s.Contains(n) {
				t.Fatalf("%d is lost: %+v", n, s)
			}
		}
		if len(s.Spans()) > Max {
			t.Fatalf("%d spans", len(s.Spans()))
		}
		last := Span{}
		for i, p := range s.Spans() {
			if p.Lo >= p.Hi || i > 0 && p.Lo <= last.Hi || p.Seq > log.Seq(p.Lo/2) {
				t.Fatalf("span %+v after %+v", p, last)
			}
			last = p
		}
		if least, ok := s.Least(); ok == s.Empty() || ok && least != s.Spans()[0] {
			t.Fatalf("least %+v, %t of %+v", least, ok, s)
		}
		s.Clear()
		if !s.Empty() {
			t.Fatal("not empty")
		}
	})
}
