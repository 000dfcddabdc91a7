package raftstore

import (
	"errors"
	"testing"
	"time"

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
	taken, refused, begun := 0, 0, time.Now()
	for i := 0; refused < 3; i++ {
		if i == 100 {
			t.Fatalf("%d changes of 10 operations were taken, %d refused", taken, refused)
		}
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
	// An account holds four changes, and is filled by one in ten seconds. A slow machine may
	// elect another leader, which has accounts of its own, and what is sent again is counted
	// again. A refusal means that one leader counted four changes.
	used, most, refusals := uint64(0), uint64(0), uint64(0)
	for _, n := range nodes {
		for _, m := range n.Budgets() {
			if m.Budget().Name == budget.CNOperations {
				used, most, refusals = used+m.Used(), max(most, m.Used()), refusals+m.Refused()
			}
		}
	}
	if taken > 3*(4+int(time.Since(begun)/(10*time.Second))+1) || used < uint64(10*taken) || most < 40 || refusals < uint64(refused) {
		t.Errorf("%d changes of 10 operations were taken, %d refused; the meters say used %d, of one leader %d, refused %d", taken, refused, used, most, refusals)
	}
	must(t, nodes[0], tagChange(newID(), "operators"))
	other := change()
	other.By.CN = newID()
	if _, err := nodes[1].Propose(patience(t), other); err != nil {
		t.Errorf("another compute node: %v", err)
	}
}
