// Package logserver answers GET /log: the log as lines of JSON, as server-sent events,
// or in frames as its entries are stored. The answer begins at a cursor, a seq, a time
// or a number of entries back, and ends at the head or follows the log.
//
// It owns the query (what is selected, where it begins, where it ends), the reading of
// a filtered log in bounded steps, and the check of positions in requests. Reading and
// keeping entries is left to package logread, what is selected to package log/query,
// visibility and budgets to package guard.
//
// New starts nothing. A stream runs in its request, and ends with it or when the server
// drains.
package logserver
