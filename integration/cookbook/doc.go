// Package cookbook runs every command of docs/cookbook.md against `rutter dev`, after
// the changes that the page describes, and compares the output with the page. Numbers,
// ids and times may differ, words may not. Those of its last part, the circle, run on three
// servers and the agents of two compute nodes, whose VMs ping each other.
//
// With RUTTER_WRITE=1 it rewrites the outputs of the page.
package cookbook
