// Package vmmove moves a VM between two of three compute nodes while it is pinged each
// millisecond from a VM on each node, and measures what was lost. The servers and agents
// are processes, the nodes and VMs network namespaces.
//
// It owns what the test of moves and the bench of the wire share. It must be used inside
// netlab.Enter.
package vmmove
