// Package gateway lets Triton's old VMAPI and CNAPI serve what the log does not have: it
// wraps the table of a listener (package rest). A request that the log can answer goes to
// the table, every other one to the old service behind, and some writes go to both.
//
// It owns the division between the two (calls.go, vms.go, servers.go), the checks that a
// request must pass before it is handed on (vet.go: what the own listeners refuse must
// not be reached through the old ones), the way there and back (forward.go), and the two
// directions of the inventory: what the old VMAPI writes comes into the log (intake.go,
// follow.go), and what the agents of compute nodes report goes to the old VMAPI
// (outflow.go). It leaves to others who may ask at all (packages allow and matrix), what
// the log's own answers are (packages vmapi and cnapi), and the form of a VM.
//
// DESIGN.md has the rules of coherence, with the test of each.
//
// New starts nothing. Run follows the old service and ends with its context. Everything
// else may be used concurrently.
package gateway
