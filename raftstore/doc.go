// Package raftstore agrees on the change log among the servers of a cluster and
// keeps it: hashicorp/raft underneath, changes.db (bbolt) beside it.
//
// It owns the path of a change from Propose to an entry on a quorum's disks, the
// numbering and chaining of entries, snapshots, membership, and reading from a seq.
// Package projections decides what a change means; package log defines its encoding.
// HTTP, the feed and access rights belong to package api.
//
// A Store is made of parts that own their state: applier (what raft's entries do),
// leadership, proposer, Membership, endpoint (the peer port), timekeeper, diskWatch,
// comparison, keeper (upkeep), rebuilder, skipWatch and barriers. Below it:
//
//	history              the log and the state as they were; folders
//	offline              work on the folder of a stopped server
//	skipped              the records of skipped raft entries
//	internal/changesdb   the file, its one writer, sweeps, checkpoints, the ring
//	internal/window      the window of change ids, which makes retries safe
//	internal/clocks      the agreed time, and stamps
//	internal/admission   the leader's queue, fair among authors, and budgets
//	internal/raftlog     raft's log on disk
//	internal/peer        connections between servers, and raft's transport
//
//	Propose → queue → proposer → raft.Apply ─ quorum ─ fsm.ApplyBatch → state, ring → Changed
//	                                                        └→ persister → changes.db
//
// # Concurrency
//
// Every exported method may be called at any time from any goroutine. Between Open and
// Run nothing can be proposed, but the content of the files can be read. Open starts no
// goroutine. Run starts all of them and returns when they have ended:
//
//	raft's own        main loop, FSM, snapshots, one or two for each follower
//	proposer          takes batches from the queue, and one that awaits them
//	persister         the only writer of changes.db, except for a restore
//	leadership        takes over after an election: barrier, identity, clock
//	barriers          one raft barrier for all waiting readers
//	peer port         accepts; one for each connection, and for each request
//
// core.mu protects the state, the head and the ring. Only raft's FSM goroutine writes
// them, so it reads them without the lock. DESIGN.md beside this file explains why a
// crash loses nothing.
package raftstore
