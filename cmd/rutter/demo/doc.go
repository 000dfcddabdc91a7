// Package demo is Rutter's main job, shown on one machine: three servers, two
// compute nodes and a dozen VMs, in network namespaces of their own, with real
// processes, a real kernel and real packets. Every step is checked; one that
// does not hold ends the demo with an error.
//
// Run starts this program again inside namespaces of its own (package
// netlab), so that nothing is left when it ends, however it ends:
// no process, namespace, link or file. It owns the story and its checks; the
// parts that it shows are the ordinary `rutter server` and `rutter agent`.
package demo
