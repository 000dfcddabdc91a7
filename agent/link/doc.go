// Package link makes one compute node's kernel match the log, by netlink alone.
//
// It owns the links that it named (sdcvxl<vnet>, vx<vnet>v<vlan>, fabric<N>),
// what hangs on them (addresses, routes, neighbours, forwarding entries) and the
// resolv.conf of the VM namespaces. What must be there comes from
// [desired.Links]; what must be done is package agent/link/plan's to say;
// when to look again, and where the numbers of fabric<N> are kept on disk, is left
// to package agent.
//
// The parts, in the order in which a pass uses them:
//
//	plan.Kernel.Dump  reads what there is: "actual" means the kernel
//	plan.Numbers      says which fabric<N> a MAC has
//	plan.Plan         compares, and says what to do; it is pure
//	plan.Kernel.Do    does it: Netlink for real, plan.Fake in tests
//	Manager           runs a pass, remembers failures and waits before it retries
//
// Between passes, Netlink compares what the kernel tells of changes (observed) with
// what it should hold (expected), and Manager answers what the kernel asks for of
// vnets on demand.
//
// A link is ours when it carries one of our names, has the kind that goes with
// the name, and sits on one of our links (a VXLAN device sits on none). Any
// other link is foreign: it is never changed, moved, adopted or deleted, nor is
// a link of ours deleted when that would take a foreign one with it. A route is
// ours when it carries [plan.RouteProtocol]; a file when its first line says so.
//
// Concurrency: Netlink and Manager belong to one goroutine at a time, except for
// Netlink.Watch and Manager.Resolve, which have sockets of their own and may run
// beside everything else. No constructor starts a goroutine.
package link
