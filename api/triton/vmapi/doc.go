// Package vmapi serves the part of Triton's VMAPI that concerns networks: VMs with
// their NICs, and updates under the rule of RFD 28 (package log/vmrule).
//
// It owns the forms and codes of these answers. A VM's own fields are decided by its
// compute node, and the log follows: a change of them becomes a task for that node.
// Fields of NICs are decided in the log: they become one change, the same as the NIC's
// own update makes.
//
// The handler may be called from any goroutine.
package vmapi
