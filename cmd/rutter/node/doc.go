// Package node runs the parts of a compute node: the agent with its kernel, the local
// SVP server, the status, the VMs and their vminfod, the node's tasks and sysinfo, and
// the certificate with which it reaches the servers.
//
// Open makes a node from Options and starts nothing; Run serves until its context ends.
// The command rutter agent, rutter dev and the tests make their nodes by it.
package node
