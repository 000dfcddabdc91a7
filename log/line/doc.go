// Package line prints entries of the log for people and for programs: as lines in
// vminfod's manner, one for each field that changed, as a table, as JSON, as lines of
// JSON and as YAML. It also finds, from the events of one object, which entry set each
// of its fields.
//
// It owns how entries look. Package log/query selects entries; the callers read them
// and write the bytes.
//
// It is pure as package log is: no clock, goroutine, file or socket, so the same
// entries give the same bytes everywhere. A Printer and a Blame belong to one
// goroutine.
package line
