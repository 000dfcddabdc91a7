// Package metrics gives an agent's numbers in the form of Prometheus: GET /metrics.
//
// It owns their names, units and help texts, which docs/metrics.md repeats. The numbers
// are those of the agent's status and of its node's port security.
//
// The number of series is bounded: each kind of object, reason and mode is one of a few,
// and beside them there is one series for each NIC of the node and each reason for which
// something of it was dropped.
//
// Concurrency: a Collector may be used from any goroutine.
package metrics
