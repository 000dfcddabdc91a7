// Package changesdb keeps changes.db, the file that holds a server's entries, objects
// and change ids (bbolt), and the newest entries in memory beside it.
//
// It owns the format of the rows, the only writer of the file (Persister), the sweeps
// that write the rows of objects after their events, checkpoints and the deletions behind
// them (Upkeep), the floor that a Retention requires, reading entries and checkpoints out
// of a transaction, and the format of an image of the file.
//
// Applying, and the state in memory, belong to the store. Reading the past belongs to
// package history.
//
// Any goroutine may use Files, and a Persister, except for the methods that say that they
// belong to the goroutine that applies. A Ring has no lock of its own.
package changesdb
