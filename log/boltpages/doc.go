// Package boltpages walks the pages of a bbolt file (go.etcd.io/bbolt 1.5.0) before bbolt
// opens it, so that bbolt gets only files in which each page is what its parent says. It
// checks each length and page number; the checksums of rows are their owners'.
//
// Upstream: bbolt trusts the pages of a file. A damaged page makes it panic, or read
// outside its map, partly in goroutines whose panics no caller can recover (issues 447,
// 446 and 1011).
//
// Tests that fail without it: boltfile.TestCheckPages, agent.TestFlippedBytes.
//
// To be taken out when bbolt returns errors for damaged pages.
package boltpages
