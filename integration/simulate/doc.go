// Package simulate runs many histories of a whole simulated cluster, and finds those in which
// something that must hold did not. docs/simulate.md is its guide.
//
// It owns how histories are run in processes of their own (Pool, Work), what is done with those
// that fail (Night: sort, replay, shrink, keep), and the tests that do so. What a history is
// belongs to package history, what happens in one to package world, what must hold to package
// oracle, and which states count to package coverage.
//
// # Concurrency
//
// A Pool has one process for each history that runs at the same time, with GOMAXPROCS=1. A
// history that ends its process (a panic, a goroutine that never ends, the limit of its time)
// fails, and the next one gets a new process. Every method may be called from any goroutine.
package simulate
