// Package plan says what must be done to a compute node's kernel so that it is as
// the log wants it. It is pure: it reads no kernel and changes none.
//
// It owns the values that package link and its callers speak with: a Snapshot is
// what a kernel holds, a Step what can be done to it, an Object what a step is for;
// the names of our links, which are also their marks; and Numbers, the number space
// of fabric<N>. [Plan] compares a Snapshot with what is wanted. Fake is a Kernel in
// memory, for tests and for a simulated node. The kernel itself is package link's.
//
// Concurrency: all types are plain values, except that a Fake belongs to one
// goroutine at a time.
package plan
