package plan

import (
	"slices"
)

// diff walks two lists of the same order, and calls one function for each element: add
// for what only want has, both for what both have, stale for what only have has (and
// for a second one of the same key).
func diff[A, B any](want []A, have []B, compare func(A, B) int, add func(A), both func(A, B), stale func(B)) {
	i, j := 0, 0
	for i < len(want) || j < len(have) {
		order := 0
		switch {
		case i == len(want):
			order = 1
		case j == len(have):
			order = -1
		default:
			order = compare(want[i], have[j])
		}
		switch {
		case order < 0:
			add(want[i])
			i++
		case order > 0:
			stale(have[j])
			j++
		default:
			both(want[i], have[j])
			i++
			j++
		}
	}
}

// sorted returns list in order, without copying it if it is so already.
func sorted[E any](list []E, compare func(E, E) int) []E {
	if slices.IsSortedFunc(list, compare) {
		return list
	}
	list = slices.Clone(list)
	slices.SortFunc(list, compare)
	return list
}

// group takes the elements for which compare is 0 from the front of a sorted list, and
// skips those before them, which are not wanted.
func group[E any](list *[]E, compare func(E) int) []E {
	rest := *list
	for len(rest) > 0 && compare(rest[0]) < 0 {
		rest = rest[1:]
	}
	end := 0
	for end < len(rest) && compare(rest[end]) == 0 {
		end++
	}
	*list = rest[end:]
	return rest[:end]
}
