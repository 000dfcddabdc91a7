// Package feedserver serves the feed to compute nodes (CNs): each gets the entries of
// the log that concern it, and whole scopes when they enter its interest, on one
// connection, from any position.
//
// It owns the choice of what a subscriber gets, the sessions of CNs (soft state, never
// written), the check of their watermarks, and the goroutines that write. The meaning
// of objects is left to package projections, the bytes of the feed to package log/feed,
// reading the log to package logread, barriers and leases to package liveness, what CNs
// report about their VMs to package vmm, and HTTP to package api, which upgrades the
// connections.
//
// Its parts depend on each other in one direction only:
//
//	Server      accepts connections
//	subscriber  one stream: start, rounds of entries, visibility, bookmarks
//	watcher     reads what the log has new, once for all, and wakes whom it concerns
//	scopeIndex  who holds which scope
//	dispatcher  runs what is woken, on few goroutines
//	sessions, snapshots, frameWriter
//
// A lower part knows of an upper one only functions that it was given: a dispatcher
// runs tasks, a session wakes its sender.
//
// New starts nothing. Each subscriber has one goroutine at a time, which receives the CN's
// frames: after each a new one, whose stack is small. A few workers write to all of them.
// The watcher's goroutine runs while there are subscribers. A subscriber has no queue, only
// a position in the log; a slow reader costs a socket buffer. Wait returns when all
// goroutines have ended, after Drain or Abort.
package feedserver
