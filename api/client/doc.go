// Package client talks to Rutter's servers over HTTP: objects, whole changes,
// the log, barriers, and the connection that a feed runs on.
//
// # Servers
//
// A Client knows several servers of one cluster and goes to the next when one does not
// answer; every server takes every request. Config.Timeout bounds a request over all
// servers and attempts.
//
// # Writing
//
// Create, Update and Delete write one object in its JSON form, Submit a change of several
// operations, NewStream many changes over one connection. A write carries an id, which is
// the same in each attempt, so it is done once. With Config.Await a write returns when
// the kernels of all compute nodes that it concerns have it; Wait does so for any seq.
//
// # Reading
//
// Get and List read the state, State the state at a seq or time of before. Log and
// Entries read what happened, in order; their position is a cursor, which a server whose
// log is another one refuses. Feed opens a compute node's stream of what concerns it:
// what its frames mean is left to package log/feed.
//
// # Errors
//
// A *log.Refusal: the servers understood and said no; nothing was written. A
// *PendingError: it is written, and not every compute node has it yet. An *Error: an
// answer that is neither, as of a path that does not exist. ErrUnavailable: no server
// answered in time; a write may have been done, and may be submitted again with its id.
// ErrOverloaded: not now; nothing was written.
//
// # Concurrency
//
// A Client is safe for concurrent use. It starts no goroutine that outlives a call.
package client
