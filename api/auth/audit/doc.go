// Package audit keeps a bounded file of who was admitted and what was refused: one JSON
// text per line, for this server only. What was changed is in the change log itself,
// with its actor.
//
// It owns the file, its size and its modes, and the number of records that it accepts
// per second. What is worth a record is left to callers. Only the fields of Record are
// written: no header, body or token.
//
// Note may be called from any goroutine. It waits at most for the disk's cache, never
// for a sync.
package audit
