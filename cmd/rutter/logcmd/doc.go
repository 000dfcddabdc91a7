// Package logcmd has the commands `rutter log …`: the log as people read it,
// from servers that run or from what was exported of them.
//
// It owns the flags and the way from a source of entries to the terminal; which
// entries are meant is left to package log/query, how they are printed to
// log/line, and files of entries to log/archive.
//
// A command runs in its caller's goroutine until it has printed all or its
// context ends; what is on the screen then ends with a whole line.
package logcmd
