// Package world runs a history (package history) of a whole cluster: servers as package serve
// composes them, agents with a kernel in memory, writers, readers, followers of the log and
// waiters for the fabric, all with the real code, in one bubble of testing/synctest, on a
// simulated network (package network) and, where a server loses power or room, on a simulated
// disk (package disk). It applies the faults of the history, does what an operator would do by
// the docs where one is needed, waits until all is healthy, and records what it sees (package
// seen). What is judged is left to package oracle, except for what must hold of every history at
// its end: what was acknowledged is in the log once, what was refused is not, all servers have
// the same state, and each kernel is what the log wants.
//
// How a process is killed: at a moment in which no goroutine of the bubble runs, its folder is
// put aside and a copy left in its place, and its host answers no more. The process goes on in
// the old files until it has ended, and what it does there is seen by none. On a simulated disk
// each further operation fails, and the next process gets a copy of the disk as of that instant.
//
// What a bubble demands of the product: a goroutine that waits for a mutex keeps the clock
// standing. So a lock whose owner may wait, for a disk or for another server, is a channel
// (raftstore/internal/notify.Turn). A goroutine that outlives its server or agent ends the
// history with a panic of testing/synctest that names it.
package world
