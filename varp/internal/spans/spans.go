// Package spans has a set of numbers as a few spans: what a client of the shootdown log
// has not been given yet. A Set is protected by its user's lock.
package spans

import (
	"slices"

	"rutter/log"
)

// Max bounds the spans of a Set. A client that keeps up has none or one. Under more
// changes than it can take, each of its requests leaves one more.
const Max = 4

// Span has the numbers above Lo, up to and with Hi. Whatever changed at or before Seq
// has a number of at most Lo.
type Span struct {
	Lo, Hi uint64
	Seq    log.Seq
}

// Set is a set of numbers. If there would be more than Max spans, the two with the
// smallest gap between them become one: the Set may have more numbers than were added,
// and never fewer. The zero value is empty.
type Set struct{ list []Span } // ascending, neither empty nor adjacent

// Empty reports whether s has no number.
func (s *Set) Empty() bool { return len(s.list) == 0 }

// Clear removes all numbers.
func (s *Set) Clear() { s.list = nil }

// Spans returns the spans, ascending. The caller must not change them.
func (s *Set) Spans() []Span { return s.list }

// Least returns the lowest span; false if s is empty.
func (s *Set) Least() (Span, bool) {
	if len(s.list) == 0 {
		return Span{}, false
	}
	return s.list[0], true
}

// Contains reports whether n is in s.
func (s *Set) Contains(n uint64) bool {
	return slices.ContainsFunc(s.list, func(p Span) bool { return p.Lo < n && n <= p.Hi })
}

// Add adds the numbers of p.
func (s *Set) Add(p Span) {
	if p.Lo >= p.Hi {
		return
	}
	var list []Span
	for _, q := range s.list {
		if q.Hi < p.Lo || q.Lo > p.Hi {
			list = append(list, q)
			continue
		}
		if q.Lo < p.Lo {
			p.Lo, p.Seq = q.Lo, q.Seq
		} else if q.Lo == p.Lo {
			p.Seq = min(p.Seq, q.Seq)
		}
		p.Hi = max(p.Hi, q.Hi)
	}
	list = append(list, p)
	slices.SortFunc(list, func(a, b Span) int {
		if a.Lo < b.Lo {
			return -1
		}
		return 1
	})
	s.list = bounded(list)
}

// Cut removes the numbers above lo, up to and with hi. What changed at or before seq
// has a number of at most hi.
func (s *Set) Cut(lo, hi uint64, seq log.Seq) {
	if lo >= hi {
		return
	}
	var list []Span
	for _, p := range s.list {
		if p.Hi <= lo || p.Lo >= hi {
			list = append(list, p)
			continue
		}
		if p.Lo < lo {
			list = append(list, Span{p.Lo, lo, p.Seq})
		}
		if p.Hi > hi {
			list = append(list, Span{hi, p.Hi, max(p.Seq, seq)})
		}
	}
	s.list = bounded(list)
}

// bounded joins spans until there are at most Max.
func bounded(list []Span) []Span {
	for len(list) > Max {
		at := 0
		for i := 1; i < len(list)-1; i++ {
			if list[i+1].Lo-list[i].Hi < list[at+1].Lo-list[at].Hi {
				at = i
			}
		}
		list[at].Hi = list[at+1].Hi
		list = slices.Delete(list, at+1, at+2)
	}
	return list
}
