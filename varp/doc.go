// Package varp speaks SVP version 1, the protocol with which compute nodes ask
// where an overlay address lives: (vnet, MAC) to an underlay address (VL2),
// (vnet, IP) to a MAC and an underlay address (VL3), and what has moved since
// they last asked (the shootdown log).
//
// It owns the bytes (wire.go, message.go and record.go hold their tables), a
// Server that answers from whatever implements Lookup and EventLog, a Client
// that pipelines over one connection for each server, and a Snoop that shows
// what others say. Shootdowns is the EventLog over a change log, and Mappings a
// fast Lookup for servers; both read a Source, which is declared here and
// implemented over the projections of a server or of an agent's cache.
// DESIGN.md beside this file says why all of it is as it is.
//
// Concurrency: a Server runs one goroutine for each connection and calls
// Lookup and EventLog from all of them at once. A Client may be used by any
// number of goroutines, and requests made at the same time share a connection.
// The codec is pure: it keeps no state and, on the way of a lookup, makes no
// allocation.
package varp
