package admission

import (
	"time"

	"rutter/log"
	"rutter/log/budget"
)

// Budgets are the accounts of what authors write. The leader keeps them, because it sees
// every change, through any server. So an author has the same account on each server. A
// new leader begins with full accounts.
//
// Operators, servers and authors without a name have no account: they are limited only by
// their turn in the queue.
type Budgets struct {
	operations, bytes map[log.Role]*budget.Meter
	All               []*budget.Meter // the meters of both, in the order of the table
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

// Spend takes the cost of a change from its author's accounts, or takes nothing and
// returns an error.
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
