// Package serviceaddr keeps the service addresses of a cluster: IP addresses that exactly
// one server has in its kernel, the leader, so that a client which dials one address
// reaches a server that serves. DESIGN.md has the protocol with its times, and what remains.
//
// It owns the rules of taking and losing an address (Holder), the address in the kernel,
// the probes and announcements on the link, and the connections that end with the address.
// Which server leads, and the proof of it, is the store's: see Leader. It asks no other
// server anything.
//
// Holder is pure, for one goroutine. Service.Run has one goroutine for all addresses; the
// other methods of Service may be called concurrently.
package serviceaddr
