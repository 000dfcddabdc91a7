// Package cookbook runs every command of docs/cookbook.md against `rutter dev`,
// after the little story that the page tells, and compares what they print: so
// the page cannot rot. Numbers, ids and times may differ, words may not.
//
// With RUTTER_WRITE=1 the page's outputs are written anew.
package cookbook
