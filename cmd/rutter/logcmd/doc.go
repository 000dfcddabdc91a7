// Package logcmd has the commands `rutter log …`, which read the log: from running
// servers, stopped servers' folders, snapshots and exported files.
//
// It owns the flags and the sources of entries. Package log/query selects entries,
// log/line prints them, and log/archive has files of entries.
//
// A command runs in its caller's goroutine until it has printed all or its context
// ends. The output then ends with a whole line.
package logcmd
