// Package vmscmd has the command rutter vms: the daemon that runs the VMs of manifests for
// this compute node's agent, and what it says of itself. It opens the socket and drops
// capabilities; what is done is package agent/vminfo/vmhelper's.
package vmscmd
