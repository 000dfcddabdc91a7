// Package vmrule refuses updates of a VM that touch fields of its networks (RFD 28,
// spec/vmapi-rule.md). It is the only place of that rule: VMAPI's surface, Rutter's own
// API and the command line use it.
//
// It also names the fields of a VM that choose what runs on its compute node (Programs).
//
// Concurrency: its functions have no state.
package vmrule
