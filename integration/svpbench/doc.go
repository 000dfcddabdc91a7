// Command svpbench measures our SVP server beside Redis and beside a bare echo,
// and prints a table and, last, one line of key=value. `make bench-svp` runs it.
//
// It owns the load, the same loop for each rival, and the pinning: what asks runs on one
// core, what answers as it is started by default. A round measures each rival for a short
// while, one after the other, and a ratio is the median over the rounds: what else the
// machine does meets both.
//
// The server that answers is a process of its own (serve.go), as Redis is: it
// holds a state of package projections behind a lock, as a server of ours does.
//
// Concurrency: one goroutine for each connection of the load; the rest is done
// one after the other.
package main
