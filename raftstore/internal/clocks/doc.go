// Package clocks computes an agreed time from readings of the servers' clocks, and stamps
// changes by it on the leader.
//
// Clocks holds the newest readings, and computes an Agreement from them. The store sends
// the requests that read the clocks. A Stamper uses an Agreement, and the wall clock as
// long as it is near the agreed one. The methods of both may be called by any goroutine;
// an Agreement is not altered once it is made.
package clocks
