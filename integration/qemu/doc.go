// Package qemu tests that machines of a real QEMU, which emulates their processor, are VMs
// of the log: they get their addresses by DHCP, reach VMs of other nodes, send only as
// themselves, and go on while the agent and the servers are killed.
package qemu
