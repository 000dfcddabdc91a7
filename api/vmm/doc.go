// Package vmm makes the log's VMMs and VMs match the reports of the compute nodes (CNs)
// (spec/vmm-doorbell.md).
//
// It owns the doorbell and the pulls that follow a ring, the calls that change a VMM's
// state, the watcher's sweep, the CNs' reports of their VMs, and the routes to a CN
// from any server: its connection here, the server that has its connection, or its
// admin address. Every state is recorded by Service.record, and reads are answered from
// the log alone. HTTP is left to package api, sessions to package api/liveness,
// generations to the CN.
//
// New starts nothing. Run pulls, records and sweeps until its context ends, and returns
// when all that it started has ended. Every other method may be called from any
// goroutine; those without a context never block.
package vmm
