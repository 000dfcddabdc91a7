// Package varpd replaces linux-cn-varpd on a compute node whose links another program
// makes: it receives the neighbours that the kernel misses, asks any SVP server for
// them, and programs the kernel with the answers.
//
// It owns the neighbours of the fabric links, in any namespace, and the forwarding
// entries of the VXLAN devices below them. Links, addresses and routes are left to the
// program that made them, SVP to package varp, and netlink to package agent/link. A
// node that runs the agent does not need this package: the agent programs the kernel
// from the log.
//
// No entry stays wrong for long. What the server's shootdown log names is asked again
// at once, everything else once in Config.RefreshEvery. An entry is removed with its
// last link. Entries that are in the kernel at the start, including those of
// linux-cn-varpd, are adopted and asked again. A missing answer changes nothing: an old
// mapping is right more often than none.
//
// Concurrency: Run starts one goroutine that owns all tables and is the only one to use
// the kernel, one goroutine for each question in flight, and the listeners. Stats may
// be called from any goroutine.
package varpd
