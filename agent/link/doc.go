// Package link makes one compute node's kernel match the log, by netlink alone.
//
// It owns the links that it named (sdcvxl<vnet>, vx<vnet>v<vlan>, fabric<N>),
// what hangs on them (addresses, routes, neighbours, forwarding entries), the
// number space N of fabric<N> and the resolv.conf of the VM namespaces. What
// must be there comes from [desired.Links]; when to look again, and where
// Numbers are kept on disk, is left to package agent.
//
// The parts, in the order in which a pass uses them:
//
//	Kernel.Dump  reads what there is: "actual" means the kernel
//	Numbers      says which fabric<N> a MAC has
//	Plan         compares, and says what to do; it is pure
//	Kernel.Do    does it: Netlink for real, Fake in tests
//	Manager      runs a pass, remembers failures and waits before it retries
//
// A link is ours when it carries one of our names, has the kind that goes with
// the name, and sits on one of our links (a VXLAN device sits on none). Any
// other link is foreign: it is never changed, moved, adopted or deleted, nor is
// a link of ours deleted when that would take a foreign one with it. A route is
// ours when it carries [RouteProtocol]; a file when its first line says so.
//
// Concurrency: Plan and the types are plain values. Netlink and Manager belong
// to one goroutine at a time, but for Netlink.Watch, which has a socket of its
// own and may run beside everything else. No constructor starts a goroutine.
package link
