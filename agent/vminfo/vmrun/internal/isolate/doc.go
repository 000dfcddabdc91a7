// Package isolate starts a program of a VM apart from the compute node: in user, mount,
// pid, ipc and uts namespaces of its own and in the network namespace of the VM, with a
// folder of the node as its whole file system, and without any right on the node.
//
// Begin makes a process that waits, so that the caller can put it into its cgroups; Run
// lets it become the program. The waiting process is this same executable under another
// name (system.WaitingName): the package's init takes over before main.
//
// It owns the namespaces, the mounts, the capabilities and the filter of system calls.
// It leaves to package vmrun which program runs, the VM's cgroups and its user IDs.
// Its functions may be called from any goroutine.
package isolate
