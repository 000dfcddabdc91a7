// Package view reads what a node's kernel has on the way from one NIC of a VM to another
// address, for rutter trace: links with their counters, the neighbour and the forwarding
// entry, and the rules of the port.
//
// It only reads, with sockets of its own, beside the manager of package link, and asks
// for single entries, so that its cost does not depend on how much the kernel holds. What
// is wanted, and what is wrong, is left to package desired.
//
// Concurrency: a Reader may be used from any goroutine. It makes one view at a time, and
// all of them together take at most one part in five of the time.
package view
