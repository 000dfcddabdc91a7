// Package raftstore agrees on the change log among the servers of a cluster and
// keeps it: hashicorp/raft underneath, changes.db (bbolt) beside it.
//
// It owns the way of a change from Propose to an entry on a quorum's disks, the
// numbering and chaining of entries, snapshots, membership, and reading from a seq.
// What a change means is decided by package projections, how it looks in bytes by
// package log; HTTP, the feed and who may do what are left to package api.
//
// A Store is made of parts that own their state: applier (what raft's entries do),
// leadership, proposer, Membership, endpoint (the peer port), timekeeper, diskWatch,
// comparison, keeper (upkeep), rebuilder, skipWatch and barriers. Below it:
//
//	history              the log and the state as they were; folders
//	offline              what is done to a stopped server's folder
//	skipped              what a skip of a raft entry says
//	internal/changesdb   the file, its one writer, sweeps, checkpoints, the ring
//	internal/window      the window of change ids, which makes retries safe
//	internal/clocks      the agreed time, and stamps
//	internal/admission   the leader's queue, turns, budgets
//	internal/raftlog     raft's log on disk
//	internal/peer        connections between servers, and raft's transport
//
//	Propose → queue → proposer → raft.Apply ─ quorum ─ fsm.ApplyBatch → state, ring → Changed
//	                                                        └→ persister → changes.db
//
// # Concurrency
//
// Every exported method may be called at any time from any goroutine; between
// Open and Run nothing is proposed, but what the files hold can be read. Open
// starts no goroutine. Run starts all of them and returns when they have ended:
//
//	raft's own        main loop, FSM, snapshots, one or two for each follower
//	proposer          takes batches from the queue, and one that awaits them
//	persister         the only writer of changes.db, but for a restore
//	leadership        takes over after an election: barrier, identity, clock
//	barriers          one raft barrier for all consistent readers that wait
//	peer port         accepts; one for each connection, and for each request
//
// The state, head and ring are protected by Store.mu, and written by raft's FSM
// goroutine alone, which therefore reads them without it. DESIGN.md beside this
// file has the argument why a crash loses nothing.
package raftstore
