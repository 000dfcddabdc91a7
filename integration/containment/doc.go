// Package containment tests, on real processes, that one party's trouble stays its
// own: no input, clock, disk, reader or node stops the cluster or is believed beyond
// itself. docs/safety.md has the rules, each with the test of this package that
// holds it.
package containment
