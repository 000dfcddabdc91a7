// Package containment tests, on real processes, that no input, clock, disk, reader or
// node stops the cluster, or is trusted in what it reports about others. docs/safety.md
// has the rules, each with the test of this package that holds it.
package containment
