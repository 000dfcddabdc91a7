// Package window remembers the ids of changes and what became of them, so that a
// retry gets the first one's result and nothing is applied twice. It owns the rules by
// which ids are taken, refused and forgotten, and the rows in changes.db that hold
// what is remembered.
//
// What it does depends on nothing but the changes, their authors and the cluster's
// time, so it is the same on each server. A Window belongs to the goroutine that
// applies; none of its methods may be called concurrently.
package window
