// Package overview answers GET /overview: what is wrong now, and what happened in the last
// hour, for people who look once and for the console's front page.
//
// It owns the list of problems, the counts of what changed by kind and by actor, and a
// short history of this server: writes, the time to the kernel, nodes behind and refused
// writes. It reads the log, the store's status, the sessions of compute nodes and the
// server's own metrics; it keeps at most an hour in rings of fixed size.
//
// New starts nothing. Run samples until its context ends. Get may be called by any number
// of goroutines: they share one answer for answerTime, so that many consoles cost as much
// as one.
package overview
