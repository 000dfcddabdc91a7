// Package output prints what commands found: JSON, lines of JSON, and tables whose
// cells, sizes and words look alike everywhere.
package output
