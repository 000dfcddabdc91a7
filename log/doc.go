// Package log says what happened: the ids, objects, changes, events, entries
// and cursors of the change log, and the one codec that turns them into bytes.
//
// It owns the names of the field (JSON form), the binary format (format.go has
// its byte tables) and the sentinels that every other package tests for. What
// an event means is left to package projections; who agrees on it and keeps it,
// to package raftstore.
//
// Each kind of object has one file, as NICs have kind_nic.go, with everything about it that
// needs no state; kinds.go has the table of them. docs/contributing.md says how to
// add one.
//
// Everything here is a value. The package has no clock, randomness, goroutine,
// file, socket or logger, so each function gives the same answer on every
// server. Values are safe for concurrent reading once they are not written any more.
//
// It shares its name with the standard library's log package, which is
// imported nowhere in this module (log/slog only). It exports no name that the
// standard one has.
package log
