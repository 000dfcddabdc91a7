package projections

import (
	"iter"
	"slices"
)

// maxChunk bounds a chunk of a sorted list: small enough that an insert moves
// little memory (2 KiB of pointers), large enough that a million items need
// only some thousands of chunks.
const maxChunk = 256

// sorted is an ordered set of T: a list of chunks, each a sorted slice. Find,
// insert and remove cost O(log n) comparisons, and iteration needs no sorting,
// so that nothing here depends on the order of a map.
type sorted[T any] struct {
	cmp    func(a, b T) int
	chunks [][]T // none is empty
	n      int
}

func newSorted[T any](cmp func(a, b T) int) *sorted[T] { return &sorted[T]{cmp: cmp} }

// len returns the number of items; a nil set is empty.
func (s *sorted[T]) len() int {
	if s == nil {
		return 0
	}
	return s.n
}

// find returns where x is, or where it would go.
func (s *sorted[T]) find(x T) (chunk, at int, found bool) {
	// Much comes nearly in order: then it belongs to the last chunk.
	if n := len(s.chunks); n > 1 && s.cmp(s.chunks[n-1][0], x) < 0 {
		at, found = slices.BinarySearchFunc(s.chunks[n-1], x, s.cmp)
		if at == len(s.chunks[n-1]) {
			return n, 0, false
		}
		return n - 1, at, found
	}
	// The first chunk whose last item is not below x.
	chunk, _ = slices.BinarySearchFunc(s.chunks, x, func(c []T, x T) int { return s.cmp(c[len(c)-1], x) })
	if chunk == len(s.chunks) {
		return chunk, 0, false
	}
	at, found = slices.BinarySearchFunc(s.chunks[chunk], x, s.cmp)
	return chunk, at, found
}

// insert adds x, or puts it in the place of its equal.
func (s *sorted[T]) insert(x T) {
	chunk, at, found := s.find(x)
	if found {
		s.chunks[chunk][at] = x
		return
	}
	s.n++
	if len(s.chunks) == 0 {
		s.chunks = [][]T{{x}}
		return
	}
	if chunk == len(s.chunks) { // beyond the last: append to it
		chunk--
		at = len(s.chunks[chunk])
	}
	s.chunks[chunk] = slices.Insert(s.chunks[chunk], at, x)
	if c := s.chunks[chunk]; len(c) > maxChunk {
		// Filled from below, as a load in order does, chunks stay nearly full.
		cut := len(c) / 2
		if at == len(c)-1 {
			cut = len(c) - 1
		}
		upper := slices.Clone(c[cut:])
		clear(c[cut:])
		s.chunks[chunk] = c[:cut:cut]
		s.chunks = slices.Insert(s.chunks, chunk+1, upper)
	}
}

// remove takes out the item equal to x, and reports whether there was one.
func (s *sorted[T]) remove(x T) bool {
	if s == nil {
		return false
	}
	chunk, at, found := s.find(x)
	if !found {
		return false
	}
	s.n--
	s.chunks[chunk] = slices.Delete(s.chunks[chunk], at, at+1)
	if len(s.chunks[chunk]) == 0 {
		s.chunks = slices.Delete(s.chunks, chunk, chunk+1)
	}
	return true
}

// get returns the item equal to x.
func (s *sorted[T]) get(x T) (item T, ok bool) {
	if s == nil {
		return item, false
	}
	chunk, at, found := s.find(x)
	if !found {
		return item, false
	}
	return s.chunks[chunk][at], true
}

// below returns the greatest item less than x.
func (s *sorted[T]) below(x T) (item T, ok bool) {
	if s == nil || s.n == 0 {
		return item, false
	}
	chunk, at, _ := s.find(x)
	if at > 0 {
		return s.chunks[chunk][at-1], true
	}
	if chunk == 0 {
		return item, false
	}
	before := s.chunks[chunk-1]
	return before[len(before)-1], true
}

// all yields every item in order; a nil set has none.
func (s *sorted[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		if s == nil {
			return
		}
		for _, c := range s.chunks {
			for _, x := range c {
				if !yield(x) {
					return
				}
			}
		}
	}
}

// from yields every item that is not less than x, in order.
func (s *sorted[T]) from(x T) iter.Seq[T] {
	return func(yield func(T) bool) {
		if s == nil {
			return
		}
		chunk, at, _ := s.find(x)
		for ; chunk < len(s.chunks); chunk, at = chunk+1, 0 {
			for _, x := range s.chunks[chunk][at:] {
				if !yield(x) {
					return
				}
			}
		}
	}
}
