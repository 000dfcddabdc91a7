// Package answer answers the requests that VMs send to all on their network, from the log
// and only from the log: ARP, IPv6 neighbour and router discovery, and DHCP (v4 and v6).
//
// It owns the packet sockets on the bridges of a node's segments, one for each, the
// decoding of what arrives there, and the replies. What a VM may know is decided by package
// projections/answers. Which bridges and ports exist is decided by package agent/link,
// which names them to Update. What a VM may send at all, and how often, is the kernel's
// (package agent/filter).
//
// A request is answered for the NIC that has its source MAC and a port on the bridge where
// it arrived, and the reply leaves by that port alone. So a VM that may send as others
// learns nothing by it. DESIGN.md has the reasons.
package answer
