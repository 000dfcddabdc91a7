// Package agent makes a compute node (CN) match the log.
//
// It owns the CN's part of the state, in memory and in cache.db, the connection
// to the servers, the loop that has the kernel programmed, and what the agent
// says of itself. How the kernel is programmed is left to package agent/link,
// the frames of the stream to package log/feed, what the log means to package
// projections, and answering SVP to package varp, by way of VL2 and VL3.
//
//	server ══ feed ══► follower ──► replica ◄── lookups, status
//	                                 │    │
//	              cache.db ◄── persister  reconciler ──► kernel
//
// The follower's states:
//
//	starting ───► following ◄──► resetting
//	    │           ▲   │            │
//	    └────► waiting ◄┴────────────┘
//
// starting: from the cache, no server has answered yet. following: a server
// feeds it. waiting: for the next attempt; the server that served is tried
// again first, since it has what comes next in its memory, then the next one.
// resetting: the cursor was of no use, so all is sent anew and compared: nothing
// that is held goes before the end, and links that are still wanted stay up.
//
// Within the replica, viewHold decides whether a new view of the log is done
// (hold.go), heldScopes says what is held, clashTable remembers NICs that claim one
// address, journal and answerLog what lookups answered that is no longer so, and
// outbox the rows that the cache is to keep.
//
// An agent needs nobody to start: it programs links and answers lookups from
// its cache. A cache that is damaged anywhere is put aside and built anew, and one
// that cannot be written leaves the agent working from memory. A view of the log
// that would take much away at once is held until somebody accepts it (hold.go).
//
// Each process has an incarnation, which is higher than all before it (also,
// if the cache was lost, by the clock), and within it each connection a session
// number. A server believes the newest pair.
//
// Concurrency: Run starts four goroutines and waits for them: the follower, the
// only one that changes the replica; the persister, the only one that writes
// rows of it; the reconciler, the only one that uses the kernel; and a watch of
// the kernel. They share the replica, whose lock is held for one change of the
// log at a time, and wake each other by channels that hold one token.
package agent
