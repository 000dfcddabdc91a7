// Package bulkwrite writes many changes over a write stream, as fast as the servers
// decide them, and in an order that gives what one after another would give.
//
// It owns the rule which changes may be under way at once (keys.go), the window of
// changes without an answer, the retries when servers are overloaded (writer.go), and the
// display of the progress (progress.go). What is written, and what is recorded of it, is
// left to its callers: a replay, `rutter apply`.
//
// A write stream promises no order: a server that does not lead forwards changes
// concurrently, and a change that a server did not decide is sent again behind later
// ones. So a change is not submitted before each earlier one is answered that names the
// same objects. Changes that have no object in common do not wait for each other.
//
// Concurrency: a Writer belongs to one goroutine, which adds changes and in which their
// results are handed on, in the order in which they were added. It starts a goroutine for
// each change under way.
package bulkwrite
