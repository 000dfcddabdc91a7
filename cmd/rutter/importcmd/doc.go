// Package importcmd is `rutter import`: it brings what an installation of Triton
// knows of its network into Rutter.
//
// It owns the reading of a running NAPI and of folders of its objects (read*.go,
// form.go), the plan of what has to be created and changed (plan.go, which is
// pure: it tries each change on a state of its own, by the rules of package
// projections, so what it says is what the servers would say), the comparison of
// portolan's mappings with those that Rutter derives (mapping.go), and the
// writing, in batches, over the binary write stream (write.go).
//
// It deletes nothing, and writes only what differs: a second run changes
// nothing, and one that was interrupted goes on when it is run again.
//
// Concurrency: a command runs in one goroutine, which starts others for the
// requests to a NAPI and for the batches under way, and waits for them.
package importcmd
