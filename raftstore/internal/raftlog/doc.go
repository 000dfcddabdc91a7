// Package raftlog keeps raft's log and its stable store (terms and votes) on disk:
// raft-boltdb in the file raft.db, or raft-wal in the folder raft.wal with the stable
// store in raft.db. It opens them, moves the log from one to the other, reports every
// error of the disk, and does what a founding and a restore need.
//
// Workarounds for hashicorp/raft, raft-boltdb and raft-wal are in packages of their own,
// which only this package imports:
//
//	early    a leader's disk writes at the same time as its followers'
//	checked  each entry, term and vote has a checksum; the whole log is checked before raft reads it
//	wal      raft-wal with a note of its end
//
// Three pieces are in this package, because they concern how raft uses the log:
//
//   - Raft 1.7.3 panics when it cannot save a term or a vote, or read an entry that it
//     must apply. So the error is reported, which stops the server in order, and the
//     goroutine that would panic ends (orExit). Raft panics by decision (issue 163). Tests:
//     raftstore.TestTermNotSaved, raftstore.TestDiskFails. To be taken out when raft
//     returns these errors.
//   - Raft saves term 1 before its first entry when a cluster is founded, and takes the
//     term alone for a cluster's state (BootstrapCluster, HasExistingState). UndoFounding
//     takes back what a crash between the two left. No issue of raft's is known to us.
//     Test: raftstore.TestFoundingCutShort. To be taken out when raft writes the entry
//     first, or both at once.
//   - Raft 1.7.3 keeps a log that contradicts the snapshot that it installs, and then
//     refuses every entry and gets the snapshot again, without end (issue 697, pull
//     request 704, both open). Restored removes such a log, and the server ends, because
//     raft would still assume that it has these entries. Test:
//     raftlog.TestLogAgainstSnapshot, raftstore.TestForeignTail. To be taken out when raft
//     removes them.
//
// docs/upstream.md has all of them.
package raftlog

import "rutter/raftstore/internal/raftlog/wal"

// Where a log can be. The stable store is raft.db in both cases, and records which of the
// two has the log.
const (
	Bolt = "boltdb" // raft.db: hashicorp/raft-boltdb
	WAL  = "wal"    // the folder raft.wal: hashicorp/raft-wal
)

// Names in the data folder.
const (
	FileName = "raft.db"
	WALName  = "raft.wal"
)

// WALSegmentBytes is the size of each file that a WAL allocates in advance.
const WALSegmentBytes = wal.SegmentBytes

// keyKind is the key in the stable store that records which of the two has the log.
var keyKind = []byte("rutter-raft-log")
