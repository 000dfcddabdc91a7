package raftstore

import (
	"encoding/json"
	"errors"
	"fmt"

	"rutter/log"
	"rutter/log/budget"
)

// budgets are the accounts of what authors write. They are the leader's: it sees
// every change, through whichever server it came, so that whoever goes to another
// server has the same account there. A new leader begins with full ones.
//
// Operators, servers and whoever needs no name have none: they wait for their turn
// (turns.go).
type budgets struct {
	operations, bytes map[log.Role]*budget.Meter
	all               []*budget.Meter // of both, in the order of the table
}

func newBudgets(cfg *Config) *budgets {
	b := &budgets{operations: make(map[log.Role]*budget.Meter), bytes: make(map[log.Role]*budget.Meter)}
	meter := func(name budget.Name) *budget.Meter {
		m := budget.NewMeter(cfg.Budgets.Get(name), cfg.Now)
		b.all = append(b.all, m)
		return m
	}
	b.operations[log.RoleCN], b.bytes[log.RoleCN] = meter(budget.CNOperations), meter(budget.CNBytes)
	b.operations[log.RoleForeign], b.bytes[log.RoleForeign] = meter(budget.ForeignOperations), meter(budget.ForeignBytes)
	return b
}

// spend takes what a change costs from its author's accounts, or nothing.
func (b *budgets) spend(role log.Role, author string, ops, bytes int) error {
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

// giveBack returns what was spent for a change that was not taken.
func (b *budgets) giveBack(role log.Role, author string, ops, bytes int) {
	if operations := b.operations[role]; operations != nil {
		operations.Charge(-int64(ops), author)
		b.bytes[role].Charge(-int64(bytes), author)
	}
}

// Budgets returns the meters of this server, which count what it did as the leader.
func (s *Store) Budgets() []*budget.Meter { return s.proposer.budgets.all }

// overloadedPayload is what a peer is told of a change that was not taken: which
// budget, if it was one. Servers of before read no more than that it was not.
func overloadedPayload(err error) []byte {
	var exceeded *budget.Exceeded
	if errors.As(err, &exceeded) {
		if b, err := json.Marshal(exceeded); err == nil {
			return b
		}
	}
	return []byte(err.Error())
}

// overloadedError reads it.
func overloadedError(payload []byte) error {
	exceeded := new(budget.Exceeded)
	if json.Unmarshal(payload, exceeded) == nil && exceeded.Name != "" {
		return fmt.Errorf("%w: %w", ErrOverloaded, exceeded)
	}
	return ErrOverloaded
}
