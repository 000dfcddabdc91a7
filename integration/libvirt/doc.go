// Package libvirt tests that domains of a real libvirtd, with a small Linux under QEMU's
// emulation, are VMs of the log: they get their addresses by DHCP and reach VMs of other
// nodes, also while libvirtd, the agent or the servers crash and start again.
package libvirt
