// Package output writes all that the program prints: JSON, lines of JSON, and tables
// whose cells, sizes and words have the same form everywhere.
//
// It owns how texts that others chose come to a terminal. Printf escapes newlines, tabs
// and hidden characters of its arguments, and a Screen, through which standard output and
// standard error go, escapes hidden characters of all else. Other packages write to
// neither by themselves: package integration/arch checks that.
package output
