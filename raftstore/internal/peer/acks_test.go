package peer

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// A time is confirmed by a majority, each by a request of the same term that began then
// or later.
func TestConfirmedByMajority(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	a := new(acks)
	five := []raft.ServerID{"b", "c", "d", "e"}
	check := func(want time.Time, term uint64, others ...raft.ServerID) {
		t.Helper()
		if got := a.quorum(term, others, at(900)); !got.Equal(want) {
			t.Errorf("term %d, %v: %v, want %v", term, others, got.Sub(start), want.Sub(start))
		}
	}
	check(at(900), 3) // a server alone is its own majority
	check(time.Time{}, 3, five...)
	a.note("b", 3, at(10))
	check(at(10), 3, "b", "c")
	check(time.Time{}, 3, five...)
	a.note("c", 3, at(30))
	check(at(30), 3, "b", "c")
	check(at(10), 3, five...)
	a.note("d", 3, at(20))
	check(at(20), 3, five...)
	a.note("c", 3, at(5)) // an older request is answered late
	check(at(20), 3, five...)
	a.note("d", 4, at(40)) // another term
	check(at(10), 3, five...)
	a.note("d", 3, at(50))
	check(at(10), 3, five...)
	check(at(30), 3, "x", "c") // a server that was removed does not count
	check(time.Time{}, 3, "x", "y")
}
