// Package command has the commands in raft entries, by their first byte, and the encoding
// of those that have only a few fields.
package command

import (
	"encoding/binary"

	"rutter/log"
)

// First byte of a raft entry: the command to every server. A command that a server does
// not know stops the server; it is never skipped (SAFETY D1).
const (
	Batch   byte = 1 // a batch of changes, as log.AppendBatch makes it
	Genesis byte = 2 // | cluster id (16) | feature version (4) |: the first leader's first entry
	// Floor: | seq (8) | chain hash there (32) |: entries up to seq are no longer kept.
	Floor byte = 3
	// Retention: an encoded Retention, which the floor follows from here on.
	Retention byte = 4
	// Feature: | feature version (4) |, which every member knows.
	Feature byte = 5

	// Highest is the highest command that this program knows. A leader sends no command
	// above what all members report to know.
	Highest = Feature
)

// IsBatch reports whether a command is a batch of changes.
func IsBatch(command []byte) bool { return len(command) > 0 && command[0] == Batch }

// EncodeGenesis returns the entry that gives a cluster its identity and feature version.
func EncodeGenesis(cluster log.UUID, feature uint32) []byte {
	b := append([]byte{Genesis}, cluster[:]...)
	return binary.BigEndian.AppendUint32(b, feature)
}

// EncodeFloor returns the raft entry that moves the floor.
func EncodeFloor(seq log.Seq, hash log.Hash) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{Floor}, uint64(seq)), hash[:]...)
}
