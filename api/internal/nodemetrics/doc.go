// Package nodemetrics measures how far compute nodes (CNs) are behind the log, from what
// they report in their sessions with this server: lag, the time until their kernels have
// an entry, objects that their kernels refuse, NICs that wait, and drift.
//
// It owns a Tracker for a server, a Node for each session, and the Collector that makes
// metrics of them. Which entries concern a CN, and which of its reports can be true, is
// decided by package feedserver.
//
// Everything is soft state of this server, by its own monotonic clock. The series are
// bounded: sums over all CNs, and at most MaxNamed CNs by name for each metric, which
// vanish when they are not among the worst any more. The memory of a session is bounded
// by maxMarks and maxSamples, whatever its CN reports.
//
// All methods may be called from any goroutine. Their locks are held for a short time, and
// they call nothing of other packages under one.
package nodemetrics
