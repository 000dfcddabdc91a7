// Package report has the messages by which a compute node (CN) asks a server to change
// its NICs in the log, and the server's answer (architecture section 9).
//
// A report is no queue of calls. For each object that differs it has one change that
// brings the log to the present state. This package owns the forms and their bounds.
// Package agent/netsync makes reports, package api/triton/netreport accepts them.
//
// Concurrency: values only.
package report
