// Package demo shows Rutter's main job on one machine: three servers, two compute nodes
// and a dozen VMs, in network namespaces of their own, with real processes, a real
// kernel and real packets. Every step is checked. A step that fails ends the demo with
// an error.
//
// Run starts this program again inside namespaces of its own (package netlab), so that
// no process, namespace, link or file is left when it ends, also when it is killed. It
// owns the steps and their checks. The servers and agents are the ordinary `rutter
// server` and `rutter agent`.
package demo
