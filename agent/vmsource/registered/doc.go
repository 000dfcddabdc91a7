// Package registered has the sources of VMs that other programs of the compute node
// register over the agent's socket: container runtimes and hypervisors.
//
// It owns the JSON of a registration and of its answer, the files that keep them, and how
// the NICs of a registration come into the log and go from it. It leaves to others: the
// kernel (package agent/link follows the log by itself), and the connection to the servers.
package registered
