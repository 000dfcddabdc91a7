// Package plan computes the steps that make a compute node's kernel match the log. It
// is pure: it reads no kernel and changes none.
//
// It owns the values that package link and its callers exchange. A Snapshot is what a
// kernel holds, a Step a change to it, an Object the subject of a step. It also owns
// the names of our links, which mark them as ours, and Numbers, the number space of
// fabric<N>. [Plan] compares a Snapshot with what is wanted. Fake is a Kernel in
// memory, for tests and for a simulated node. The real kernel is in package link.
//
// Concurrency: all types are plain values, except that a Fake belongs to one
// goroutine at a time.
package plan
