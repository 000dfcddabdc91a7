package varp

import (
	"net/netip"

	"rutter/log"
)

// Lookup answers VL2 and VL3 for a Server. Both methods are called from many goroutines
// at once, once for each message, and must not wait for disk or network, because the
// next answers on the same connection wait too. An answer is never older than what this
// node has applied. vnet is at most log.MaxVNet.
type Lookup interface {
	// VL2 returns where the NIC with this MAC is, false if there is none.
	VL2(vnet uint32, mac log.MAC) (Underlay, bool)
	// VL3 returns the MAC of ip, and where it is, false if there is none. ip is never
	// IPv4-mapped: ::ffff:10.0.0.1 on the wire arrives as 10.0.0.1.
	VL3(vnet uint32, ip netip.Addr) (log.MAC, Underlay, bool)
}

// BatchLookup is a Lookup that a Server brings up to date once for the requests that it
// read together: each of their answers is as of a moment after the last of them came.
type BatchLookup interface {
	Lookup
	// Begin returns the Lookup of a batch, and whether End must be called after it. It
	// stays as it is in between, so nothing may wait in between.
	Begin() (of Lookup, end bool)
	End()
}

// EventLog answers LOG_REQ and LOG_RM for a Server. Both methods are called from many
// goroutines at once. cn is an underlay address, never IPv4-mapped; that the client
// owns it is not verified.
type EventLog interface {
	// Events appends to dst the records that cn has not acknowledged, oldest first and
	// at most maxBytes of records (see Record.Size), and returns it. For an unknown
	// node there are none. The same records come again until they are removed. false
	// means that the log cannot be read now: the client gets FATAL and asks again in
	// its next period.
	Events(dst []Record, cn netip.Addr, maxBytes int) ([]Record, bool)
	// Remove records that cn acknowledges the records of these ids. Unknown ids, and
	// those of other nodes, are ignored. ids is only valid during the call. false means
	// that this could not be recorded: FATAL, as above.
	Remove(cn netip.Addr, ids []log.UUID) bool
}
