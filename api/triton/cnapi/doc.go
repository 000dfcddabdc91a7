// Package cnapi serves what CNAPI serves (spec/cnapi.md): compute nodes (CNs),
// what they say of themselves, their heartbeats, boot facts, tasks and tickets of
// the waitlist, on any server.
//
// It owns the paths and forms, what a sysinfo makes of a server's object, the
// delivery of tasks to CNs that have no agent of ours, and the care for what is
// over: tasks past their deadline, tickets that expired, and both when they have
// ended long ago. What may become of a task or a ticket is decided by package
// projections, in the log's order; whether a CN is there, by api/liveness; tasks
// reach agents of ours through the feed.
//
// A task is an object of the log. Any server makes it, any server tells how it
// stands, and a wait is for the log, not for the server that took it. Who does it
// claims it first: the agent, or the server that posts it to the CN.
//
// Concurrency: New starts nothing. Run delivers, sweeps and takes status reports
// until its context ends, and returns when all of that has ended. The handler may
// be used from any goroutine.
package cnapi
