// Package miss receives what the kernel misses: neighbours that a fabric link asks for,
// and MACs for which a VXLAN device has no forwarding entry (spec/kernel.md section 1,
// the messages A, B and C).
//
// It owns the sockets that receive them, in one network namespace and in all namespaces
// that have a number there, and the reading of lost ones. The answer, and writing it
// into the kernel, is left to a [Resolver]: the agent answers from its cache, varpd by
// SVP.
//
// Concurrency: a Listener runs in one Run; the Resolver is called by one goroutine at a
// time. Constructors start no goroutine.
package miss
