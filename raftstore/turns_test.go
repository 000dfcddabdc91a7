package raftstore

import (
	"errors"
	"testing"

	"rutter/log"
	"rutter/log/budget"
)

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
