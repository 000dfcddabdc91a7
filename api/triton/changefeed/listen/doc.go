// Package listen is a client of Triton's change feed (package changefeed is Rutter's
// server of it): it probes, upgrades, registers and reads items, on one of several
// servers, and tries the next one when a connection ends.
//
// It owns the protocol and the position of a listener. The meaning of an item is left
// to its handler. It asks a Rutter server for cursors, so that a listener continues at
// its position on any server: no item is missed or repeated. If that is impossible (a
// cursor that is too old, or a publisher other than Rutter), the bootstrap says so, and
// the objects must be read again.
//
// New starts nothing. Run blocks until its context ends or a function of the Handler
// returns an error, and calls these functions one at a time.
package listen
