// Package vmstore holds the VMs of a compute node with the last events about them,
// and declares how a Source tells of VMs. It owns the order of the events, what is
// kept of them for slow readers, and the form in which they stand in the stream.
// A Store may be used from any goroutine.
package vmstore
