// Package client talks to Rutter's servers over HTTP: objects, whole changes,
// the log, barriers, and the connection that a feed runs on.
//
// # Servers
//
// A Client knows several servers of one cluster. If one does not answer, it tries the
// next; every server accepts every request. Config.Timeout bounds a request over all
// servers and attempts.
//
// # Writing
//
// Create, Update and Delete write one object in its JSON form, Submit writes a change
// of several operations, NewStream many changes over one connection. A write has an id,
// the same in each attempt, so that it is done once. With Config.Await a write returns
// when the kernels of all compute nodes that it concerns have it; Wait does so for any
// seq.
//
// # Reading
//
// Get and List read the state, State the state at an earlier seq or time. Log and
// Entries read the entries in order. Their position is a cursor, which a server with
// another log refuses. Feed opens a compute node's stream; the meaning of its frames is
// left to package log/feed.
//
// # Errors
//
// A *log.Refusal: the servers refused the change; nothing was written. A *PendingError:
// it is written, and not every compute node has it yet. An *Error: another unsuccessful
// answer, for example for an unknown path. ErrUnavailable: no server answered in time;
// a write may have been done, and may be submitted again with its id. ErrOverloaded:
// too much load now; nothing was written.
//
// # Concurrency
//
// A Client is safe for concurrent use. It starts no goroutine that outlives a call.
package client
