// Package audit keeps a bounded file of who was let in and who was refused what:
// one JSON text per line, for this server only. What was changed stands in the
// change log itself, with its actor.
//
// It owns the file, its size and its modes, and how many records a second it
// takes. It leaves what is worth a record to others, and writes only the fields
// of Record: no header, body or token has a place there.
//
// Concurrency: Note may be called from any goroutine; it waits for the disk's
// cache at most, never for a sync.
package audit
