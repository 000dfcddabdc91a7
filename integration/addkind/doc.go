// Package addkind tests the steps of docs/contributing.md, "Add a kind": it adds a kind
// of object to a copy of the module, builds the program, and uses the kind by its
// command, its API and the log.
package addkind
