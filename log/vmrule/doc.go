// Package vmrule says what an update of a VM may not touch (RFD 28,
// spec/vmapi-rule.md): what its NICs have of their networks. It is the one place
// of that rule: VMAPI's surface, Rutter's own API and the command line ask it.
//
// Concurrency: functions of values.
package vmrule
