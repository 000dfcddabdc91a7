// Package output prints the results of commands: JSON, lines of JSON, and tables whose
// cells, sizes and words have the same form everywhere.
package output
