// Package admission says who may write when: the leader's queue, in which authors take
// turns, the accounts of what authors may write in a second, and the batches that are on
// their way through raft.
//
// It knows a change as bytes with an author and a cost, and is told what became of it.
// All methods may be called by any goroutine.
package admission
