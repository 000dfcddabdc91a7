// Package filter holds what a node's kernel lets through: which frames a VM may send by
// its port (port security), which underlay packets are taken as VXLAN packets, and that
// nothing that a VM sends reaches the node's own network stack. It writes one nf_tables
// table of its own, reads it back, and counts what was dropped, by port and reason.
//
// What a node is to let through comes from the log by way of package agent/link, which
// orders the changes of it among those of links and forwarding entries.
package filter
