// Package link makes one compute node's kernel match the log, by netlink alone.
//
// It owns the links that it made (as sdcvxl<vnet>, vx<vnet>v<vlan>, fabric<N>, and with port
// security br<vnet>v<vlan> and port<N>), what is
// on them (addresses, routes, neighbours, forwarding entries) and the resolv.conf of
// the VM namespaces. What must exist comes from [desired.Links]; the steps to get there
// come from package agent/link/plan. When to check again, and where the numbers of
// fabric<N> are stored, is left to package agent.
//
// The parts, in the order in which a pass uses them:
//
//	plan.Kernel.Dump  reads what there is: "actual" means the kernel
//	plan.Numbers      has the N of the fabric<N> of each MAC, where its link ends, and whose
//	                  links are ours
//	plan.Identify     says which links are ours, and under which name each was made
//	plan.Plan         compares, and returns the steps; it is pure
//	plan.Kernel.Do    executes them: Netlink for real, plan.Fake in tests
//	Manager           runs a pass, remembers failures and waits before it retries
//
// Apply makes single entries, and single NICs of the node, as wanted without a pass. For a
// NIC the same parts do the same with what plan.PartKernel.DumpPart reads.
//
// Between passes, Netlink compares the kernel's notifications (observed) with what the
// kernel should hold (expected), and Manager answers the kernel's questions about vnets
// on demand.
//
// A link is ours when it bears our mark (plan.Mark: an alias and a link group, with the
// cluster and the object), not by its name (SAFETY L3). While it lives it is known by its
// ifindex, and steps use only that: a link that was renamed is programmed as before. In a
// VM's namespace, where a guest can write marks, the device below the link decides. Any
// other link is foreign: it is never changed, moved, adopted or deleted. A link of ours is
// not deleted if that would delete a foreign one. A route is ours when it has [plan.RouteProtocol]; a file,
// when its first line marks it.
//
// Where the link of a NIC ends is told by the source of its VM (Manager.Attach, SAFETY L4):
// fabric<N> in the VM's namespace, a link of another name there, or a tap. The last two are
// fabric<N> and port<N> in all steps, under another name in the kernel (plan.Link.As), so
// that numbers, marks and renames are as for all links. A tap is the node's end without
// another end: it has rules, a bridge and a static entry, and no addresses, routes,
// neighbours and resolvers, which are the guest's. What rtnetlink cannot do of a tap is in
// package internal/tap.
//
// Concurrency: Netlink and Manager belong to one goroutine at a time, except for
// Netlink.Watch and Manager.Resolve, which have sockets of their own and may run beside
// everything else. No constructor starts a goroutine.
package link
