// Package vmm keeps the log's VMMs and VMs what the compute nodes (CNs) say that
// they are (spec/vmm-doorbell.md).
//
// It owns the doorbell and the pulls that follow a ring, the calls that change a
// VMM's state, the watcher's sweep, what a CN reports of its VMs, and the way to
// a CN from any server: its own connection here, the server that has it, or its
// admin address. Whatever way a state came, it is recorded by Service.record,
// and reads are served from the log alone. HTTP is left to package api,
// sessions to package api/liveness, generations to the CN.
//
// Concurrency: New starts nothing. Run pulls, records and sweeps until its
// context ends, and returns when all that it started has ended. Every other
// method may be called from any goroutine; those without a context never wait.
package vmm
