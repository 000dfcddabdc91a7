// Package qmp is a client of QMP, QEMU's control protocol (docs/interop/qmp-spec.rst of
// QEMU): lines of JSON on a Unix socket. It has what the node needs of it: a command
// without arguments with its answer, and the events about a machine's life.
//
// QEMU runs what a tenant chose, so it counts as hostile here: the bytes of one message,
// the time of each answer and the rate of events are bounded. It owns the socket's name
// and the protocol, and leaves to others who asks and what follows from an event. A Conn
// is used by one goroutine at a time; Close may be called from any.
package qmp
