// Package command has the commands that stand in raft entries, by their first byte, and
// how those are written that need no more than a few fields.
package raftstore

import (
	"encoding/binary"

	"rutter/log"
)

// First byte of a raft entry: what it asks of every server. One that a server
// does not know stops it; it is never skipped (SAFETY D1).
const (
	commandBatch   byte = 1 // a batch of changes, as log.AppendBatch makes it
	commandGenesis byte = 2 // | cluster id (16) | feature version (4) |: the first leader's first entry
	// commandFloor: | seq (8) | chain hash there (32) |: entries up to seq are kept no more.
	commandFloor byte = 3
	// commandRetention: a Retention, which the floor follows from now on.
	commandRetention byte = 4
	// commandFeature: | feature version (4) |, which every member knows.
	commandFeature byte = 5

	// highestCommand is what this program knows; a leader sends nothing above
	// what all members say they know.
	highestCommand = commandFeature
)

// isBatch reports whether a command is a batch of changes.
func isBatch(command []byte) bool { return len(command) > 0 && command[0] == commandBatch }

// genesis returns the entry that gives a cluster its identity and feature version.
func genesis(cluster log.UUID, feature uint32) []byte {
	b := append([]byte{commandGenesis}, cluster[:]...)
	return binary.BigEndian.AppendUint32(b, feature)
}

// floorEntry returns the raft entry that moves the floor.
func floorEntry(seq log.Seq, hash log.Hash) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{commandFloor}, uint64(seq)), hash[:]...)
}
