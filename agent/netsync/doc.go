// Package netsync keeps the NICs of a compute node's VMs in step with the log,
// as Triton's net-agent does with NAPI (spec/net-agent.md).
//
// It owns which fields go in which direction, when a NIC is created, released or
// taken from a VM, and what is remembered of that (the book). It leaves to
// others: the VMs and their manifests (package agent/vminfo), the kernel (package
// agent/link follows the log by itself), and the way to the servers.
//
//	VMs ───────┐                   ┌──► report ──► a server, which answers what
//	the log ───┼──► core.pass ─────┤              became of it and how it stands
//	the answer ┤                   └──► edits of manifests, reboots
//	the book ──┘
//
// There is no queue. Each pass compares what is now with what the log has, and
// the differences are the report; so what is older is never sent again, and a
// NIC that is released is not reported any more. Three things make that hold
// against reports that are late, lost, doubled or in another order:
//
//   - a creation has one change id from when it is first wanted until it is
//     known what became of it, also over a restart: the log does it once, so that
//     it cannot bring back what was deleted;
//   - an update or deletion names the revision that it was decided for;
//   - nothing is taken from a VM, and nothing created, because the agent's part
//     of the log lacks it: a server is asked first, and answers as of now.
//
// A NIC that the log deleted is known from one that it has not yet by the book:
// it says which NICs the log was seen to have. A book of another cluster counts
// for nothing.
//
// Concurrency: Run does all in its own goroutine. Wake and Status may be called
// from any.
package netsync
