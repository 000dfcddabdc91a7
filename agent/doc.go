// Package agent makes a compute node (CN) match the log.
//
// It owns the CN's part of the state, in memory and in cache.db, the connection to the
// servers, the loop that programs the kernel, and the agent's status. Programming the
// kernel is left to package agent/link, the frames of the stream to package log/feed,
// the meaning of the log to package projections, and answering SVP to package varp,
// which calls VL2 and VL3.
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
// starting: from the cache, no server has answered yet. following: a server feeds it.
// waiting: for the next attempt. The server that served last is tried first, because it
// has what comes next in memory; then the next one. resetting: the cursor was not
// usable, so everything is sent again and compared. Nothing that is held is removed
// before the end, and links that are still wanted stay up.
//
// Within the replica, viewHold decides whether a new view of the log is carried out
// (hold.go), heldScopes has the scopes that are held, clashTable remembers NICs that
// claim the same address, journal and answerLog remember answers that are no longer
// true, and outbox has the rows that the cache must save.
//
// An agent starts without any server: it programs links and answers lookups from its
// cache. A cache that is damaged anywhere is put aside and made again. If the cache
// cannot be written, the agent works from memory. A view of the log that would remove
// much at once is held until an operator accepts it (hold.go).
//
// Each process has an incarnation, which is higher than all before it (by the clock, if
// the cache was lost). Within it each connection has a session number. A server accepts
// the newest pair only.
//
// Concurrency: Run starts four goroutines and waits for them. The follower is the only
// one that changes the replica. The persister is the only one that writes rows of it.
// The reconciler is the only one that uses the kernel; what sources of VMs say of where links
// end (SetAttachments) is left for it. The fourth watches the kernel.
// They share the replica, whose lock is held for one change of the log at a time, and
// wake each other by channels that hold one token.
package agent
