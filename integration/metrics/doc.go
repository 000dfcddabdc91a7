// Package metrics compares docs/metrics.md with the metrics that servers and agents
// register, checks with promtool what they answer, and looks with real servers and agents
// whether the numbers of nodes are right.
//
// With RUTTER_WRITE=1 it writes the page.
package metrics
