// Package support collects what a daemon can say of itself when something is wrong with it:
// its last log lines, its settings, its goroutines, its heap profile, and the program and
// the machine that it runs on. It takes out what is secret.
//
// It owns the parts with their bounds, the ring of log lines, the removal of secrets, and
// the pages in which a compute node sends a part over its session. It leaves to others how
// a part is asked for: package api has the routes, cmd/rutter/debugsocket the Unix socket,
// cmd/rutter/node the requests of servers.
//
// All of it may be used concurrently.
package support
