// Package underlay finds out what the underlay of a compute node (CN) carries, and reports
// it to the log.
//
// It owns the look at the interface of the node's VTEP and at the route to each other VTEP
// of the log (Monitor), the probe of the path there (Prober), and the report: the fields
// underlay_mtu and underlay_paths of the node's server object, written only if they are
// others. What follows from them is left to package projections/underlay.
//
// A probe is an ICMP echo request that no router may cut, from the node's VTEP to another
// VTEP that the log has, at most 10 packets in a second, of which one is under way at a
// time. A VTEP that does not answer is left alone, and nothing follows from its silence.
//
// Concurrency: Monitor.Run blocks until its context ends. Status and Trouble may be called
// from any goroutine. A Prober is for one goroutine.
package underlay
