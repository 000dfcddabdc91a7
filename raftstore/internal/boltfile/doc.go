// Package boltfile is what the store does to bbolt files (go.etcd.io/bbolt 1.5.0)
// besides reading and writing rows: it makes them, checks their pages before bbolt
// opens them (CheckPages), and turns bbolt's panics into errors (Guard).
//
// Upstream: bbolt trusts the pages of a file. One that is damaged makes it panic, or
// read outside its map; at an open without a stored free list (NoFreelistSync) it
// does so in a goroutine of its own, where no caller can recover. Issue 447 (closed)
// asks for errors in place of panics; 446 and 1011 (open) are such panics.
//
// Tests that fail without it: TestCheckPages, TestGuard, TestMake; all files together:
// raftstore.TestBitsFlippedAnywhere.
//
// To be taken out: CheckPages when bbolt returns errors for damaged pages, at an open
// and later, and says which of two meta pages it fell back from; Guard with it; Make
// when a crash within bbolt's first write leaves a file that it opens.
package boltfile
