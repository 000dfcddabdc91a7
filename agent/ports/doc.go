// Package ports says what port security does on a node: whether it is enforced, which
// ports have which rules, and what was dropped, by port and reason.
//
// It owns the form of that for operators (rutter agent status, rutter agent ports),
// metrics and traces. It reads the table of package agent/filter and decides nothing.
//
// Concurrency: Status may be called from any goroutine.
package ports
