// Package libvirt makes the domains of a libvirtd of this compute node VMs of the log.
//
// It owns the reading of a domain's XML, what libvirt's hook for QEMU does at each of its
// operations (Hook), and the Source: package registered's, kept in step with libvirt by
// virsh(1), which tells what no hook tells. It leaves to others: what a registration
// becomes in the log (package registered), and the links (package agent/link).
//
// # Concurrency
//
// A hook is a process of its own. While it runs, libvirt holds the lock of its domain, and
// each virsh that asks for that domain waits: so nothing that a hook waits for may wait for
// virsh. A Source runs virsh in the goroutines of its Run only.
package libvirt
