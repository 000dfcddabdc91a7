// Package listen listens to Triton's change feed (package changefeed serves
// ours): it probes, upgrades, registers and reads items, on one of several
// servers, and goes to the next when a connection ends.
//
// It owns what goes over the wire and where a listener is. What an item means is
// left to whom it is handed. A server of ours is asked for cursors, so that a
// listener goes on where it was, on whichever server: no item is missed and none
// comes twice. Where that cannot be (a cursor that is too old, a publisher that
// is not ours), the bootstrap says so, and the objects are to be read anew.
//
// Concurrency: New starts nothing. Run blocks until its context ends or a
// function of the Handler returns an error, and calls these one at a time.
package listen
