// Package changefeed serves the log as Triton's change feed: websockets at
// /changefeeds, in the two versions that sdc-changefeed's listeners speak
// (spec/changefeed.md), on every server.
//
// It owns registrations, the items that are made of entries, who gets which,
// and the connections of listeners. Agreement and storage are left to whoever
// stands behind Store, the frames of websockets to coder/websocket (see
// DESIGN.md), the objects that a listener reads at its bootstrap route to the
// surfaces that serve them. Package listen is the other side.
//
// Concurrency: New starts nothing. Run reads the log for all listeners and
// serves those that Handler upgrades, until its context ends; then it closes
// them with a reason and returns when all their goroutines have. While it does
// not run, the probe is answered with 503. A listener has two goroutines, one
// that reads and one that writes, and no queue: only a place in the log.
package changefeed
