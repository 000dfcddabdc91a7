// Package vmapi serves Triton's VMAPI from the log: VMs with their NICs, lists with every
// documented filter, what agents of compute nodes report, tags and metadata, and updates
// under the rule of RFD 28 (package log/vmrule).
//
// It owns the forms and codes of these answers. A VM's own fields are decided by its
// compute node, and the log follows: a change of them becomes a task for that node. Fields
// of NICs are decided in the log: they become one change, the same as the NIC's own update
// makes, and a report of a VM changes none of them. What takes a VM's object apart is
// package log/vmobject. What only the old VMAPI can do is left to package
// api/triton/gateway; without one it is refused with 501.
//
// A list holds the state for a few VMs at a time, and filters them without it. The handler
// may be called from any goroutine.
package vmapi
