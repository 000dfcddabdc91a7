// Package netreport takes what compute nodes (CNs) report of their NICs
// (package log/report) and writes it: POST /{cn}.
//
// It owns the order of a CN's reports as this server knows it (one that is older
// than another is ignored), and which NICs a CN may speak of. It leaves to the
// log what becomes of each change, and to the agent what to say next: a change
// names the revision that it was made for, so one that another server wrote late
// does no harm; the order here only spares the log a wrong state in between.
//
// Concurrency: the handler may be called from any goroutine.
package netreport
