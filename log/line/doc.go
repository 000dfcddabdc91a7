// Package line prints entries of the log for people and for programs: as lines
// in vminfod's manner, one for each field that changed, as a table, as JSON, as
// lines of JSON and as YAML; and it folds the events of one object into who set
// each of its fields.
//
// It owns how entries look. Which entries are printed is left to package
// log/query, where they come from and where the bytes go to its callers.
//
// It is pure as package log is: no clock, goroutine, file or socket, so the same
// entries give the same bytes everywhere. A Printer and a Blame belong to one
// goroutine.
package line
