// Package admission decides which changes the leader takes, and in which order: its
// queue, which is fair among authors, the accounts of what authors may write in a second,
// and the batches that are in raft.
//
// For it a change is bytes with an author and a cost. All methods may be called by any
// goroutine.
package admission
