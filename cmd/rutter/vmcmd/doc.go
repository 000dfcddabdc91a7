// Package vmcmd has the commands of VMs and VMMs: rutter vm, which works on the VMs
// of this compute node and waits until a change is visible, and rutter vmm.
package vmcmd
