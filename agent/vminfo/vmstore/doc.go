// Package vmstore holds the VMs of a compute node with the last events about them, and
// declares how a Source reports VMs. It owns the order of the events, the number of
// events kept for slow readers, and their form in the stream. A Store may be used from
// any goroutine.
package vmstore
