// Package designation chooses the compute node (CN) for a new VM, by the algorithm that
// CNAPI documents for POST /allocate: a list of servers goes through filters, each of
// which says whom it left out and why, and the one with the highest score is chosen.
// The same figures answer POST /capacity.
//
// It owns the request's form and its checks (Parse), what is chosen by configuration
// (Defaults), the figures of a server (Capacity), and the filters and scores (Allocate).
//
// The answer is a function of the state and the request alone, so that it is the same on
// every server: there is no clock, no chance, and no figure that a node told one server
// only. Where CNAPI adds a random score, an order of the servers that follows from the
// UUID of the VM is used. Sizes are whole numbers: MiB, and percent of a core.
//
// Two things are stricter than in CNAPI: disk is always compared, as far as the sysinfo
// tells the size of the pool, and a request without a package is held to the ratios of
// the configuration too. So no server is ever chosen that lacks capacity.
//
// Concurrency: everything is a plain function of its arguments. A Memo has one user at a
// time.
package designation
