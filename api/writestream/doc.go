// Package writestream serves GET and POST /write: one connection on which a client writes
// many changes without waiting for each (package log/intake has its frames).
//
// It owns the streams with their windows, and the codes by which a client is told why a
// change was not decided. Who may open one is decided before; whether a change may be
// written, by the log.
//
// Each stream has a goroutine that reads and one that answers, and at most one for each
// change that is handed on to the leader; all end before its request does.
package writestream
