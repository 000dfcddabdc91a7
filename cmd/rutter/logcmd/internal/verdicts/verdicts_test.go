package verdicts

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/projections/desired"
)

// Whatever the verdicts of a range are, each turn that Search finds is one, neighbouring
// turns fit together, and the ends are those of the range. It needs few looks.
func TestSearchFindsTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := log.Seq(rapid.IntRange(0, 1000).Draw(t, "low"))
		high := low + log.Seq(rapid.IntRange(0, 1_000_000).Draw(t, "length"))
		var turns []log.Seq
		for range rapid.IntRange(0, 4).Draw(t, "turns") {
			turns = append(turns, low+1+log.Seq(rapid.IntRange(0, int(high-low)).Draw(t, "turn")))
		}
		slices.Sort(turns)
		turns = slices.Compact(turns)
		at := func(seq log.Seq) (desired.Trace, error) {
			passed := 0
			for passed < len(turns) && turns[passed] <= seq {
				passed++
			}
			return desired.Trace{Verdict: []string{desired.Reachable, desired.Unreachable}[passed%2]}, nil
		}
		a, err := Search(low, high, at, Reach)
		if err != nil {
			t.Fatal(err)
		}
		first, _ := at(low)
		last, _ := at(high)
		if a.First.Verdict != first.Verdict || a.Last.Verdict != last.Verdict {
			t.Fatalf("the ends are %s and %s, want %s and %s", a.First.Verdict, a.Last.Verdict, first.Verdict, last.Verdict)
		}
		now := a.First.Verdict
		for _, turn := range a.Turns {
			if !slices.Contains(turns, turn.Seq) || turn.Before.Verdict != now || turn.After.Verdict == now {
				t.Fatalf("%d is no turn of %v from %s: %+v", turn.Seq, turns, now, turn)
			}
			now = turn.After.Verdict
		}
		if now != last.Verdict || len(turns) == 1 && turns[0] <= high && len(a.Turns) != 1 || a.Looks > samples+1+20*len(a.Turns) {
			t.Fatalf("%d turns of %v after %d looks, to %s", len(a.Turns), turns, a.Looks, now)
		}
		if a.Whole && len(a.Turns) != len(slices.DeleteFunc(turns, func(s log.Seq) bool { return s > high })) {
			t.Fatalf("%d turns of %v, and it is said to be all", len(a.Turns), turns)
		}
	})
}
