// Package budget bounds the work that one party may have done for it: operations
// written, bytes, entries looked at. A request is no measure, since one of them
// may cost a thousand times what another does.
//
// It owns the table of budgets with their defaults and reasons, how an operator
// sets one, the accounts of identities and tenants, and the error that says which
// budget is used up and when to come again. It leaves to others what a piece of
// work costs, who somebody is, and how a refusal is answered.
//
// An account is filled by so much a second, and holds so much at most. All of it
// may be used concurrently. It has no clock of its own: NewMeter is given one.
package budget
