// Package budget bounds the work that servers do for one party: operations written,
// bytes, entries looked at. It does not count requests, because one request may cost a
// thousand times as much as another.
//
// It owns the table of budgets with their defaults and reasons, how an operator sets
// one, the accounts of identities and tenants, and the error that says which budget is
// used up and when to try again. Its callers know what work costs, which identity asks,
// and how a refusal is answered.
//
// An account fills at a rate per second, up to a maximum. All functions may be called
// concurrently. The package has no clock of its own: the caller gives one to NewMeter.
package budget
