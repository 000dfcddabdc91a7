// Package vmlink connects a compute node's VMs with the servers (spec/vmm-doorbell.md):
// rings for VMMs whose state the log may not have, responses to servers' requests, and
// the inventory of VMs.
//
// It owns none of these states: they are package vminfo's, which knows no servers. It
// leaves the connection to package agent, whose Local it is, and reads from the agent's
// part of the log what was recorded.
//
//	VMMs ── a new state ──► Link ── ring ──► a server, which then asks:
//	VMMs ◄── request ────── Link ◄── request ──  … and the log has it
//	VMMs ◄── recorded ───── Link ◄── bookmark ── the agent's part of the log
//
// A ring is a hint. It goes through the agent's connection. If it has no effect, or
// there is no connection, it goes to any server over HTTP, with growing pauses, until
// the log shows the state. A server creates the VMM if the log does not have it.
//
// Concurrency: Run starts three kinds of goroutines and waits for them: one that rings,
// one that sends the inventory, and a few that answer requests. The methods of
// agent.Local and Ring may be called from any goroutine, and do not block.
package vmlink
