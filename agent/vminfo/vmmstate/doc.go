// Package vmmstate keeps the VMMs of a compute node, the incarnations of its VMs: their
// states and generations on disk, the work to reach a requested state, and the HTTP by
// which servers read them (spec/vmm-doorbell.md). It leaves to others: carrying rings
// to servers, and starting processes. A Table may be used from any goroutine; Run does
// the work.
package vmmstate
