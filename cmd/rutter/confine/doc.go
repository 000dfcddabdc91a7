// Package confine makes a daemon of this program less than its user is: it drops
// the capabilities that the daemon does not need and takes the files from it that
// are not its own, for good, and keeps its folder to its owner.
//
// It owns what the kernel is told, and says what holds. It leaves to the daemons
// what they need, and to systemd's units (scripts/systemd) what only whoever
// starts a process can take away. Landlock is for servers alone: agents open
// paths of others that only their run shows (network namespaces, cgroups and
// programs of VMs), and ProtectSystem= in their unit holds for the rest.
//
// Drop, Bound and Files are for one goroutine, at the start; the other functions
// may be called concurrently.
package confine
