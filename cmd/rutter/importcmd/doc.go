// Package importcmd is `rutter import`: it imports the network objects of a Triton
// installation.
//
// It owns the reading of a running NAPI and of folders of its objects (read*.go,
// form.go), the plan of what must be created and changed (plan.go), the comparison of
// portolan's mappings with those that Rutter derives (mapping.go), and the writing, in
// batches, over the binary write stream (write.go). The plan is pure: it tries each
// change on a state of its own, by the same rules as the servers.
//
// It deletes nothing, and writes only differences. So a second run changes nothing, and
// a run after an interrupted one completes it.
//
// Concurrency: a command runs in one goroutine, which starts others for the
// requests to a NAPI and for the batches under way, and waits for them.
package importcmd
