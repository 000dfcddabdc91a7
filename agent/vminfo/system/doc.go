// Package system reads the parts of a VM on a compute node: its manifest, network
// namespace, init process and cgroup. It changes nothing and keeps no state, so its
// functions may be called from any goroutine.
package system
