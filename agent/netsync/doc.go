// Package netsync keeps the NICs of a compute node's VMs in step with the log,
// as Triton's net-agent does with NAPI (spec/net-agent.md).
//
// It owns the direction of each field, when a NIC is created, released or removed from
// a VM, and what is remembered of that (the ledger). It leaves to others: the VMs and
// their manifests (package agent/vminfo), the kernel (package agent/link follows the
// log by itself), and the connection to the servers.
//
//	VMs ───────┐                   ┌──► report ──► a server, which answers what
//	the log ───┼──► core.pass ─────┤              became of it and its state
//	the answer ┤                   └──► edits of manifests, reboots
//	the ledger ┘
//
// There is no queue. Each pass compares the current state with the log, and the
// differences are the report. So an older state is never sent again, and a NIC that is
// released is not reported any more. Three rules keep that true for reports that are
// late, lost, repeated or out of order:
//
//   - a creation has one change id from when it is first wanted until it is
//     known what became of it, also over a restart: the log does it once, so that
//     it cannot bring back what was deleted;
//   - an update or deletion names the revision that it was decided for;
//   - nothing is taken from a VM, and nothing created, because the agent's part
//     of the log lacks it: a server is asked first, and answers as of now.
//
// The ledger has the NICs that the log was seen to have. It distinguishes a NIC that
// the log deleted from one that it does not have yet. A ledger of another cluster is
// ignored.
//
// Concurrency: Run does everything in its own goroutine. Wake and Status may be called
// from any goroutine.
package netsync
