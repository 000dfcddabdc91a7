// Package writestream serves GET and POST /write: one connection on which a client
// writes many changes without waiting for each (package log/intake has its frames).
//
// It owns the streams with their windows, and the codes that say why a change was not
// decided. Access is checked before; whether a change may be written is decided in the
// log.
//
// Each stream has a goroutine that reads, one that answers, and at most one for each
// change that is forwarded to the leader. All end before the request does.
// change that is handed on to the leader; all end before its request does.
package writestream
