// Package messages gives each warning and error of the daemons' logs a number, and bounds
// how often one is repeated.
//
// It owns the table of messages, from which docs/messages.md is made: what each means and
// what to do. A message is found by its text, so the packages that log know nothing of it; a
// test finds every warning in the source and holds the table to it. Handler adds the number
// to each line (id=RT012) and leaves out repeats.
//
// A Handler may be used by several goroutines.
package messages
