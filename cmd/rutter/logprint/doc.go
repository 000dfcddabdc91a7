// Package logprint prints entries of the log at the terminal, in the format that
// --output names, for each command that shows entries.
//
// It owns when lines are written: each at once, or many together, and always whole
// lines. How an entry looks is left to package log/line, where entries come from to
// the commands.
package logprint
