package varp

import (
	"net/netip"

	"rutter/log"
)

// Lookup is what a Server answers VL2 and VL3 from. Both methods are called
// from many goroutines at once, once for each message, and must not wait for
// disk or network: the answers behind them in the same connection wait too. An
// answer is never older than what this node has applied. vnet is at most
// log.MaxVNet.
type Lookup interface {
	// VL2 returns where the NIC with this MAC is, false if nobody has it.
	VL2(vnet uint32, mac log.MAC) (Underlay, bool)
	// VL3 returns who has ip, and where, false if nobody has it. ip is never
	// IPv4-mapped: what the wire says as ::ffff:10.0.0.1 arrives as 10.0.0.1.
	VL3(vnet uint32, ip netip.Addr) (log.MAC, Underlay, bool)
}

// EventLog is what a Server answers LOG_REQ and LOG_RM from. Both methods are
// called from many goroutines at once. cn is an underlay address and never
// IPv4-mapped; nothing proves that the caller owns it.
type EventLog interface {
	// Events appends to dst what cn has yet to hear, oldest first and at most
	// maxBytes of records (see Record.Size), and returns it. A node that is
	// unknown has nothing to hear. What was returned comes again until it is
	// removed. false means that the log cannot be read now: the client is told
	// FATAL and asks again in its next period.
	Events(dst []Record, cn netip.Addr, maxBytes int) ([]Record, bool)
	// Remove notes that cn has dealt with the records of these ids. Ids that
	// are unknown, or another node's, are passed over. ids is only valid during
	// the call. false means that this could not be noted: FATAL, as above.
	Remove(cn netip.Addr, ids []log.UUID) bool
}
