// Package changesdb keeps changes.db, the file that holds a server's entries, objects
// and change ids (bbolt), and the newest entries in memory beside it.
//
// It owns the form of the rows, the one writer of the file (Persister), the sweeps by
// which the rows of objects follow the events, checkpoints and what is deleted behind
// them (Upkeep), the floor that a Retention asks for, reading entries and checkpoints
// out of a transaction, and the form in which the file travels as an image.
//
// What is applied, and what stands in memory for it, is the store's; who may read the
// past is package history's.
//
// Files are used by any goroutine. A Persister's methods too, except where one says
// that it belongs to the goroutine that applies. A Ring has no lock of its own.
package changesdb
