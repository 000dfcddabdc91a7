// Package query says which entries of the log are meant: the filters of GET
// /log and of `rutter log`, which are read by one function, and a matcher that
// looks at encoded events without decoding them.
//
// It owns the names of the filters, what they mean, and the refusals of those
// that cannot be meant. Where a reading begins and how it goes on is left to
// its readers; how entries are printed, to package log/line.
//
// It is pure as package log is: no clock, goroutine, file or socket. A Filter
// is a value and may be shared once nobody writes it; a Matcher belongs to one
// reader.
package query
