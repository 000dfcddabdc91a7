// Package vmsource declares the one interface between a compute node and what runs its
// VMs: a folder of manifests, another vminfod, programs that register VMs, a hypervisor.
//
// A Source lists and watches VMs: it tells a Sink. A VM is its JSON (package vmdoc), in
// vminfod's form: uuid, alias, owner_uuid, zonename, state, pid, max_physical_memory,
// exit_status and nics. A NIC is attached to a VM by being in nics, and detached by being
// there no more; its field attach (vmdoc.Attach) says where its link ends: in the network
// namespace of the VM's zonename, or at a tap device. Where the source starts and stops
// VMs too, it is Controlled.
//
// A node has several sources at once. Each VM is of exactly one: a Put of a VM that
// another source has is ErrDuplicate, and the source puts it aside with that reason until
// the other lets it go. A source that dies, or that cannot see its VMs (Status.Complete is
// false), takes nothing away: what it reported last stays.
package vmsource
