// Package changefeed serves the log as Triton's change feed: websockets at
// /changefeeds, in the two versions of sdc-changefeed's protocol (spec/changefeed.md),
// on every server.
//
// It owns registrations, the items that are made of entries, their selection for each
// listener, and the connections of listeners. Agreement and storage are left to the
// implementation of Store, the frames of websockets to coder/websocket, the objects
// that a listener reads at its bootstrap route to the surfaces that serve them. Package
// listen is the client.
//
// New starts nothing. Run reads the log for all listeners and serves those that Handler
// upgrades, until its context ends. Then it closes them with a reason and returns when
// all their goroutines have ended. While it does not run, the probe is answered with
// 503. A listener has two goroutines, one that reads and one that writes, and no queue:
// only a position in the log.
package changefeed
