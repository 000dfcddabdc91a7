// Package window remembers the ids of changes and their results, so that a retry gets the
// first result and no change is applied twice. It owns the rules by which ids are taken,
// refused and forgotten, and the rows in changes.db with what is remembered.
//
// It depends only on the changes, their authors and the cluster's time, so it is the same
// on each server. A Window belongs to the goroutine that applies; none of its methods may
// be called concurrently.
package window
