// Package varp implements SVP version 1, the protocol with which compute nodes ask
// where an overlay address is: (vnet, MAC) to an underlay address (VL2), (vnet, IP) to
// a MAC and an underlay address (VL3), and which mappings changed since the last
// request (the shootdown log).
//
// It owns the bytes (wire.go, message.go and record.go hold their tables), a Server
// that answers from any Lookup and EventLog, a Client that pipelines over one
// connection for each server, and a Snoop that prints the messages of others.
// Shootdowns is the EventLog over a change log, and Mappings a fast Lookup for servers.
// Both read a Source, which is declared here and implemented over the projections of a
// server or of an agent's cache. DESIGN.md beside this file has the reasons.
//
// Concurrency: a Server serves lookups in a few loops (internal/evloop), and runs one
// goroutine for each connection, which waits or does the rest. It calls Lookup and
// EventLog from all of them at once. A Client may be used by any number of goroutines,
// and concurrent requests share a connection. The codec is pure: it keeps no state, and
// a lookup makes no allocation in it.
package varp
