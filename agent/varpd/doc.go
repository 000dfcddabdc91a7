// Package varpd stands in for linux-cn-varpd on a compute node whose links
// somebody else makes: it hears which neighbours the kernel misses, asks any SVP
// server for them, and programs the kernel with the answers.
//
// It owns the neighbours of the fabric links, in whichever namespace they are,
// and the forwarding entries of the VXLAN devices below them; links, addresses
// and routes are left to whoever made them. SVP is left to package varp, netlink
// to package agent/link. A node that runs the agent needs none of this: the
// agent programs the kernel from the log.
//
// Nothing stays wrong for long: what the server's shootdown log names is asked
// again at once, everything else once in Config.RefreshEvery, an entry goes when
// its last link does, and whatever the kernel holds at the start is taken over
// and asked again too, linux-cn-varpd's leavings included. An answer that cannot
// be had changes nothing: an old mapping is right more often than none.
//
// Concurrency: Run starts one goroutine that owns all tables and alone touches
// the kernel, one for each question under way, and the listeners. Stats may be
// called from any goroutine.
package varpd
