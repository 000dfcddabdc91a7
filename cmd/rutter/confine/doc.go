// Package confine makes a daemon of this program less than its user is: it drops
// the capabilities that the daemon does not need, for good, and keeps its folder
// to its owner.
//
// It owns what the kernel is told, and says what holds. It leaves to the daemons
// what they need, and to systemd's units (scripts/systemd) what only whoever
// starts a process can take away, such as the sight of other folders. There is
// no Landlock: its Go library restricts a process by rules for paths, and both
// daemons open paths of others that only their run shows (network namespaces,
// cgroups and programs of VMs, certificates that a renewal or an operator puts
// into place); ProtectSystem= in the units holds for the rest.
//
// Drop is for one goroutine, at the start; the other functions may be called
// concurrently.
package confine
