// Package task does what a compute node (CN) is asked to do: the tasks of the log
// (log.Task) that reach it by its feed.
//
// It owns the claim, the bounds on what runs at once, the results on disk until
// they are in the log, and the kinds of tasks: nop, sysinfo, commands, and the life
// of VMs. What a VM is, and how it starts, is left to package agent/vminfo.
//
// A task is done at most once. Who does it claims it first, in the log, by the
// incarnation of this agent's process, which is higher than any before it; only
// what is claimed is begun. What came of it is on disk before it is told, and stays
// there until the log has it. A process that finds a task active which another
// claimed, and no result of it on disk, tells that it was interrupted: it may have
// been done, and is not done again.
//
//	queued ──claim──► active ──result──► complete | failure
//	                    └── claimed by an earlier process, no result ──► failure: interrupted
//
// Concurrency: New starts nothing. Run does tasks, each in a goroutine, until its
// context ends, and returns when all of them have. Wake may be called from
// anywhere, and does not block.
package task
