// Package report has the words in which a compute node (CN) tells a server what
// its NICs must become in the log, and what a server answers (architecture section 9).
//
// A report is no queue of calls: it holds, for each object that differs, the one
// change that makes the log say what is so now. It owns the forms and their
// bounds; who makes reports (package agent/netsync) and who takes them (package
// api/triton/netreport) it leaves to others.
//
// Concurrency: values only.
package report
