// Package vmapi serves the part of Triton's VMAPI that concerns networks: VMs
// with their NICs, and updates under the rule of RFD 28 (package log/vmrule).
//
// It owns the forms and codes of these answers. What a VM is it leaves to its
// compute node: fields of the VM itself become a task for that node, since the
// log follows the node and not the other way; fields of NICs are the log's, and
// become one change of it, the same as the NIC's own update makes.
//
// Concurrency: the handler may be called from any goroutine.
package vmapi
