// Package liveness knows which compute nodes (CNs) are present and how far each is,
// from the sessions of all servers.
//
// It owns the table of a server's sessions, their gathering by the leader, the
// transitions of server objects between running and unknown (architecture section 8),
// and the barrier: the wait until every CN that is interested in some scopes has
// programmed a seq (architecture section 7). Connections are left to package api,
// agreement to the store behind Store, communication between servers to Peers.
//
// Everything except the transitions is soft state. The leader asks each server for the
// sessions that changed since its last answer; a new leader begins with nothing and
// gets all of them. A session is named by incarnation and number. Only the newest
// session of a CN counts, on any server: a later report about an older one never
// overrides it (spec/cnapi.md §4.2 has the fault that follows when time of receipt
// decides instead).
//
// New starts nothing. Run gathers and writes transitions while this server leads, and
// returns when all that it started has ended. Every other method may be called from any
// goroutine.
package liveness
