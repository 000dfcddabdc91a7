// Package system reads what a compute node has of a VM: its manifest, network
// namespace, init process and cgroup. It changes nothing and remembers nothing, so
// its functions may be called from any goroutine.
package system
