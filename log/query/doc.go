// Package query selects entries of the log. It has the filters of GET /log and of
// `rutter log`, one function that reads them, and a matcher that looks at encoded
// events without decoding them.
//
// It owns the names of the filters, their meaning, and the refusals of wrong ones. Its
// callers decide where reading begins and how it continues. Package log/line prints
// entries.
//
// It is pure as package log is: no clock, goroutine, file or socket. A Filter is a
// value and may be shared when it is no longer written. A Matcher belongs to one
// reader.
package query
