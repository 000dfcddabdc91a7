// Package netreport takes the reports of compute nodes (CNs) about their NICs (package
// log/report) and writes them into the log: POST /{cn}.
//
// It owns the order of a CN's reports on this server (an older one is ignored), and the
// check of which NICs a CN may report. It leaves to the log whether a change is
// accepted, and to the agent what to report next. A change names the revision that it
// was made for, so a late one through another server does no harm. The order here only
// avoids a wrong intermediate state in the log.
//
// The handler may be called from any goroutine.
package netreport
