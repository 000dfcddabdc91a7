package raftstore

import (
	"errors"
	"fmt"
	"testing"

	"rutter/log"
	"rutter/log/budget"
)

// W1: whoever floods the leader's queue waits behind itself: a change of another
// author is in the next batch, and each has its part of it by what its changes cost.
func TestTurnsOfAuthors(t *testing.T) {
	t.Parallel()
	put := func(q *turns, author string, n, size int) {
		t.Helper()
		for range n {
			if err := q.put(&proposal{bytes: make([]byte, size), author: author, cost: size + opCost}); err != nil {
				t.Fatal(err)
			}
		}
	}
	count := func(batch []*proposal) map[string]int {
		counts := make(map[string]int)
		for _, p := range batch {
			counts[p.author]++
		}
		return counts
	}
	var q turns
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
	q = turns{}
	put(&q, "small", 8000, 400)
	put(&q, "large", 100, 100<<10)
	costs := make(map[string]int)
	for range 8 {
		for _, p := range q.take(maxBatchChanges, maxBatchBytes) {
			costs[p.author] += p.cost
		}
	}
	if s, l := costs["small"], costs["large"]; s < l/2 || l < s/2 {
		t.Errorf("small changes had %d, large ones %d", s, l)
	}

	// Nothing is lost, and each author's are in order.
	q = turns{}
	next := make(map[string]int)
	for i := range 3000 {
		author := fmt.Sprint(i % 7)
		if err := q.put(&proposal{bytes: []byte{byte(next[author]), byte(next[author] >> 8)}, author: author, cost: 1 + i%5*turnCost}); err != nil {
			t.Fatal(err)
		}
		next[author]++
	}
	seen := make(map[string]int)
	for batch := q.take(100, maxBatchBytes); len(batch) > 0; batch = q.take(100, maxBatchBytes) {
		for _, p := range batch {
			if n := int(p.bytes[0]) | int(p.bytes[1])<<8; n != seen[p.author] {
				t.Fatalf("author %s: %d follows %d", p.author, n, seen[p.author])
			}
			seen[p.author]++
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
	q := queue{kick: make(chan struct{}, 1), flying: maxFlying}
	n := 0
	for err := error(nil); err == nil; n++ {
		if err = q.put(&proposal{author: "flood"}); err != nil && !errors.Is(err, ErrOverloaded) {
			t.Fatal(err)
		}
	}
	if n-1 != maxQueued/2 {
		t.Errorf("one author has %d places of %d", n-1, maxQueued)
	}
	for i := range 100 {
		if err := q.put(&proposal{author: fmt.Sprint(i % 10)}); err != nil {
			t.Fatalf("another author: %v", err)
		}
	}
	for i := 0; ; i++ {
		if err := q.put(&proposal{author: "large", bytes: make([]byte, 1<<20)}); errors.Is(err, ErrOverloaded) {
			if i == 0 || i > maxQueuedBytes>>20 {
				t.Errorf("%d MiB of one author", i)
			}
			break
		}
	}
}

// W1: what a compute node writes is counted at the leader, through whichever
// server it comes, and refused with the budget's name; operators write on.
func TestWriteBudgets(t *testing.T) {
	t.Parallel()
	nodes := three(t, func(c *Config) {
		c.Budgets, _ = budget.Parse([]string{"cn_operations=1:40"})
	})
	cn := newID()
	change := func() *log.Change {
		c := &log.Change{ID: newID(), Actor: "cn:x", By: log.Author{Role: log.RoleCN, CN: cn}}
		for range 10 {
			c.Ops = append(c.Ops, log.Op{Action: log.Delete, Kind: log.KindVM, ID: newID().String()})
		}
		return c
	}
	leader := leaderOf(t, nodes)
	taken, refused := 0, 0
	for i := range 12 {
		_, err := nodes[i%3].Propose(patience(t), change())
		var exceeded *budget.Exceeded
		switch {
		case err == nil:
			taken++
		case errors.Is(err, ErrOverloaded) && errors.As(err, &exceeded) && exceeded.Name == budget.CNOperations && exceeded.Who == "cn:"+cn.String() && exceeded.Wait > 0:
			refused++
		default:
			t.Fatalf("server %d: %v", i%3, err)
		}
	}
	// The account holds four changes, and is filled by one in ten seconds.
	if taken < 4 || taken > 8 || refused != 12-taken {
		t.Errorf("%d changes of 10 operations were taken, %d refused", taken, refused)
	}
	must(t, nodes[0], tagChange(newID(), "operators"))
	other := change()
	other.By.CN = newID()
	if _, err := nodes[1].Propose(patience(t), other); err != nil {
		t.Errorf("another compute node: %v", err)
	}
	for _, m := range leader.Budgets() {
		if m.Budget().Name == budget.CNOperations && (m.Refused() < uint64(refused) || m.Used() < 40) {
			t.Errorf("the meter says used %d, refused %d", m.Used(), m.Refused())
		}
	}
}
