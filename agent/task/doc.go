// Package task runs the tasks of a compute node (CN): the tasks of the log (log.Task)
// that its feed brings.
//
// It owns the claim, the bounds on tasks that run at once, the results on disk until
// they are in the log, and the kinds of tasks: nop, sysinfo, commands, and the life of
// VMs. What a VM is, and how it starts, is left to package agent/vminfo.
//
// A task runs at most once. The agent claims it first, in the log, with the incarnation
// of its process, which is higher than all before it. It begins only claimed tasks. The
// result is on disk before it is sent, and stays there until the log has it. If a
// process finds an active task that an earlier process claimed, and no result on disk,
// it reports the task as interrupted: it may have been done, and is not repeated.
//
//	queued ──claim──► active ──result──► complete | failure
//	                    └── claimed by an earlier process, no result ──► failure: interrupted
//
// Concurrency: New starts nothing. Run runs tasks, each in a goroutine, until its
// context ends, and returns when all of them have ended. Wake may be called from any
// goroutine and does not block.
package task
