// Package evloop reads TCP connections in few goroutines that wait in epoll themselves,
// as single-threaded servers do. A goroutine for each connection that waits in the Go
// runtime costs two wake-ups of threads and an idle read for each small request: on two
// cores more than all the rest of answering it.
//
// It owns the descriptor of each connection that it takes, because a descriptor that the
// runtime also waits for wakes a thread of the runtime for each packet.
//
// Concurrency: a Conn has one user, the goroutine that serves it; its Handler runs in
// the goroutine of a loop, while that user waits in Serve. Close may be called from any
// goroutine.
package evloop
