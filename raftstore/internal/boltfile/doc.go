// Package boltfile handles bbolt files (go.etcd.io/bbolt 1.5.0) as files: it makes them
// (Make), checks their pages before bbolt opens them (CheckPages), and turns bbolt's
// panics into errors (Guard). It does not know rows.
//
// Upstream: bbolt trusts the pages of a file. A damaged page makes it panic, or read
// outside its map. At an open without a stored free list (NoFreelistSync) that happens in
// a goroutine of its own, where no caller can recover. Issue 447 (closed) asks for errors
// in place of panics; 446 and 1011 (open) are such panics.
//
// Tests that fail without it: TestCheckPages, TestGuard, TestMake; all files together:
// raftstore.TestBitsFlippedAnywhere.
//
// To be taken out: CheckPages and Guard when bbolt returns errors for damaged pages, at
// an open and later, and reports from which of two meta pages it fell back; Make when
// bbolt can open the file that a crash within its first write leaves.
package boltfile
