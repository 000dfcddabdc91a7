// Package vmmstate keeps the VMMs of a compute node, the incarnations of its VMs: their
// states and generations on disk, what is done to reach a state that is asked for,
// and the HTTP by which servers pull them (spec/vmm-doorbell.md). It leaves to
// others: carrying rings to servers, and starting processes. A Table may be used
// from any goroutine; Run does the work.
package vmmstate
