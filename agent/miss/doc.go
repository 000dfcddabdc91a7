// Package miss hears what the kernel does not know: neighbours that a fabric
// link asks for, and MACs that a VXLAN device has no forwarding entry for
// (spec/kernel.md section 1, the messages A, B and C).
//
// It owns the sockets that hear of them, in one network namespace and in all
// those that this one has a number for, and the reading of what was lost. What
// the answer is, and writing it into the kernel, is left to a [Resolver]: the
// agent answers from its cache, varpd by SVP.
//
// Concurrency: a Listener runs in one Run; the Resolver is called by one
// goroutine at a time. Constructors start no goroutine.
package miss
