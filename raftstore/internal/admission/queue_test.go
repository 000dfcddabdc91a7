package admission

import (
	"errors"
	"fmt"
	"testing"
)

// W1: an author that floods the leader's queue waits behind itself: a change of another
// author is in the next batch, and each has its part of it by what its changes cost.
func TestTurnsOfAuthors(t *testing.T) {
	t.Parallel()
	put := func(q *roundRobin, author string, n, size int) {
		t.Helper()
		for range n {
			if err := q.put(&Proposal{Bytes: make([]byte, size), Author: author, Cost: size + OpCost}); err != nil {
				t.Fatal(err)
			}
		}
	}
	count := func(batch []*Proposal) map[string]int {
		counts := make(map[string]int)
		for _, p := range batch {
			counts[p.Author]++
		}
		return counts
	}
	var q roundRobin
	put(&q, "flood", 10_000, 400)
	put(&q, "one", 1, 400)
	put(&q, "large", 20, 300<<10)
	got := count(q.take(maxBatchChanges, maxBatchBytes))
	if got["one"] != 1 || got["large"] == 0 || got["flood"] < 100 {
		t.Errorf("the first batch has %v", got)
	}
	put(&q, "one", 1, 400)
	if got := count(q.take(maxBatchChanges, maxBatchBytes)); got["one"] != 1 {
		t.Errorf("the second batch has %v", got)
	}

	// Two that flood have the same: by cost, not by changes.
	q = roundRobin{}
	put(&q, "small", 8000, 400)
	put(&q, "large", 100, 100<<10)
	costs := make(map[string]int)
	for range 8 {
		for _, p := range q.take(maxBatchChanges, maxBatchBytes) {
			costs[p.Author] += p.Cost
		}
	}
	if s, l := costs["small"], costs["large"]; s < l/2 || l < s/2 {
		t.Errorf("small changes had %d, large ones %d", s, l)
	}

	// Nothing is lost, and each author's are in order.
	q = roundRobin{}
	next := make(map[string]int)
	for i := range 3000 {
		author := fmt.Sprint(i % 7)
		if err := q.put(&Proposal{Bytes: []byte{byte(next[author]), byte(next[author] >> 8)}, Author: author, Cost: 1 + i%5*quantum}); err != nil {
			t.Fatal(err)
		}
		next[author]++
	}
	seen := make(map[string]int)
	for batch := q.take(100, maxBatchBytes); len(batch) > 0; batch = q.take(100, maxBatchBytes) {
		for _, p := range batch {
			if n := int(p.Bytes[0]) | int(p.Bytes[1])<<8; n != seen[p.Author] {
				t.Fatalf("author %s: %d follows %d", p.Author, n, seen[p.Author])
			}
			seen[p.Author]++
		}
	}
	for author, n := range next {
		if seen[author] != n {
			t.Errorf("author %s: %d of %d", author, seen[author], n)
		}
	}
	if q.count != 0 || q.bytes != 0 || len(q.of) != 0 || len(q.circle) != 0 {
		t.Errorf("what is left: %+v", q)
	}
}

// An author that alone fills its half of the queue leaves the other to others.
func TestShareOfTheQueue(t *testing.T) {
	t.Parallel()
	q := Queue{kick: make(chan struct{}, 1), flying: MaxInFlight}
	n := 0
	for err := error(nil); err == nil; n++ {
		if err = q.Put(&Proposal{Author: "flood"}); err != nil && !errors.Is(err, ErrOverloaded) {
			t.Fatal(err)
		}
	}
	if n-1 != maxQueued/2 {
		t.Errorf("one author has %d places of %d", n-1, maxQueued)
	}
	for i := range 100 {
		if err := q.Put(&Proposal{Author: fmt.Sprint(i % 10)}); err != nil {
			t.Fatalf("another author: %v", err)
		}
	}
	for i := 0; ; i++ {
		if err := q.Put(&Proposal{Author: "large", Bytes: make([]byte, 1<<20)}); errors.Is(err, ErrOverloaded) {
			if i == 0 || i > maxQueuedBytes>>20 {
				t.Errorf("%d MiB of one author", i)
			}
			break
		}
	}
}

// TestTake: batches keep their bounds, and a second one flies only if it pays.
func TestTake(t *testing.T) {
	t.Parallel()
	tests := []struct {
		waiting, size, flying, want int
	}{
		{0, 1, 0, 0},
		{1, 1, 0, 1},
		{1, 1, 1, 0},
		{pipelineFrom, 1, 1, pipelineFrom},
		{pipelineFrom, 1, MaxInFlight, 0},
		{maxBatchChanges + 1, 1, 0, maxBatchChanges},
		{3, maxBatchBytes / 2, 0, 2},
		{2, maxBatchBytes + 1, 0, 1},
	}
	for _, test := range tests {
		q := Queue{kick: make(chan struct{}, 1), flying: test.flying}
		for range test.waiting {
			if err := q.Put(&Proposal{Bytes: make([]byte, test.size)}); err != nil {
				t.Fatal(err)
			}
		}
		if got := len(q.Take()); got != test.want {
			t.Errorf("%+v: took %d", test, got)
		}
	}
}

// A queue that is full takes nothing from any author.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	q := Queue{kick: make(chan struct{}, 1), flying: MaxInFlight}
	for i := range maxQueued {
		if err := q.Put(&Proposal{Author: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Put(&Proposal{}); !errors.Is(err, ErrOverloaded) {
		t.Errorf("a full queue: %v, want errOverloaded", err)
	}
}

// What was stamped before a change that sets the log's time does not get behind it,
// and is proposed again; what is stamped later does.
func TestStampedBeforeMend(t *testing.T) {
	t.Parallel()
	q := &Queue{kick: make(chan struct{}, 1)}
	before := &Proposal{Stretch: q.stretch.Load()}
	var waited Outcome // authors take turns: what waits could come behind it
	if err := q.Put(&Proposal{Author: "another", Done: func(o Outcome) { waited = o }}); err != nil {
		t.Fatal(err)
	}
	if err := q.PutMend(&Proposal{}); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(waited.Err, ErrNotLeader) {
		t.Errorf("what waited: %v", waited.Err)
	}
	if err := q.Put(before); !errors.Is(err, ErrNotLeader) {
		t.Errorf("it is queued behind: %v", err)
	}
	if err := q.Put(&Proposal{Stretch: q.stretch.Load()}); err != nil || q.Length() != 2 {
		t.Errorf("what is stamped later: %v, %d are queued", err, q.Length())
	}
}
