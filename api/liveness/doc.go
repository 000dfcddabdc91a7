// Package liveness knows which compute nodes (CNs) are there and how far each
// is: what the sessions of all servers say together.
//
// It owns the table of a server's sessions, their gathering by the leader, the
// judgement that turns them into the status running or unknown of server
// objects (architecture section 8), and the barrier: the wait until every CN that is
// interested in some scopes has programmed a seq (architecture section 7). Connections are
// left to package api, agreement to the store behind Store, the way to the other
// servers to Peers.
//
// All of it but the transitions is soft state. The leader asks each server for
// the sessions that changed since its last answer; a new leader begins with
// nothing and is told all. A session is named by incarnation and number, and the
// newest of a CN is the only one that counts, wherever it is: what an older one
// says later never overrides it (spec/cnapi.md §4.2 has the fault that follows
// when time of receipt decides instead).
//
// Concurrency: New starts nothing. Run gathers and judges while this server
// leads, and returns when all that it started has ended. Every other method may
// be called from any goroutine.
package liveness
