package admission

import (
	"time"

	"rutter/log"
	"rutter/log/budget"
)

// Budgets are the accounts of what authors write. They are the leader's: it sees
// every change, through whichever server it came, so that whoever goes to another
// server has the same account there. A new leader begins with full ones.
//
// Operators, servers and whoever needs no name have none: they wait for their turn
// in the queue.
type Budgets struct {
	operations, bytes map[log.Role]*budget.Meter
	All               []*budget.Meter // of both, in the order of the table
}

// NewBudgets returns full accounts of the bounds in set.
func NewBudgets(set budget.Set, now func() time.Time) *Budgets {
	b := &Budgets{operations: make(map[log.Role]*budget.Meter), bytes: make(map[log.Role]*budget.Meter)}
	meter := func(name budget.Name) *budget.Meter {
		m := budget.NewMeter(set.Get(name), now)
		b.All = append(b.All, m)
		return m
	}
	b.operations[log.RoleCN], b.bytes[log.RoleCN] = meter(budget.CNOperations), meter(budget.CNBytes)
	b.operations[log.RoleForeign], b.bytes[log.RoleForeign] = meter(budget.ForeignOperations), meter(budget.ForeignBytes)
	return b
}

// Spend takes what a change costs from its author's accounts, or nothing.
func (b *Budgets) Spend(role log.Role, author string, ops, bytes int) error {
	operations := b.operations[role]
	if operations == nil {
		return nil
	}
	if err := operations.Spend(author, int64(ops)); err != nil {
		return err
	}
	if err := b.bytes[role].Spend(author, int64(bytes)); err != nil {
		operations.Charge(-int64(ops), author)
		return err
	}
	return nil
}

// GiveBack returns what was spent for a change that was not taken.
func (b *Budgets) GiveBack(role log.Role, author string, ops, bytes int) {
	if operations := b.operations[role]; operations != nil {
		operations.Charge(-int64(ops), author)
		b.bytes[role].Charge(-int64(bytes), author)
	}
}
