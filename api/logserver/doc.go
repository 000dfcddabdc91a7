// Package logserver answers GET /log: the log as lines of JSON, as server-sent events,
// or in frames as its entries are stored; from a cursor, a seq, a time or so many entries
// back; once, or followed.
//
// It owns the query (what is selected, where it begins, where it ends), the reading of
// a filtered log in bounded steps, and how a position that a client names is checked.
// Reading and keeping entries is left to package logread, what is selected to package
// log/query, who may see what and how much work it may be to package guard.
//
// Concurrency: New starts nothing. A stream runs in its request, and ends with it or
// when the server drains.
package logserver
