// Package vmlink carries what a compute node knows of its VMs to the servers
// (spec/vmm-doorbell.md): rings for VMMs whose state the log may not have, the
// answers to what servers ask, and the inventory of VMs.
//
// It owns none of these states: they are package vminfo's, which knows no
// servers. It leaves the connection to package agent, whose Local it is, and
// reads from the agent's part of the log what was recorded.
//
//	VMMs ── a new state ──► Link ── ring ──► a server, which then asks:
//	VMMs ◄── request ────── Link ◄── request ──  … and the log has it
//	VMMs ◄── recorded ───── Link ◄── bookmark ── the agent's part of the log
//
// A ring is a hint. It goes through the agent's connection, and if nothing came
// of it, or there is none, to any server over HTTP, with growing pauses, until
// the log shows the state. A server creates the VMM that the log does not know.
//
// Concurrency: Run starts three kinds of goroutines and waits for them: one that
// rings, one that sends the inventory, and a few that answer requests. The
// methods of agent.Local and Ring may be called from any goroutine, and do not
// block.
package vmlink
