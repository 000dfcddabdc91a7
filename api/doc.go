// Package api is the HTTP of a server: objects in the form that NAPI, CNAPI and
// VMAPI gave them, changes, the log as lines of JSON, the feed of compute nodes
// (CNs), lookups, the cluster, health and metrics.
//
// It owns the paths of objects, changes, lookups, the cluster and health, their forms and
// status codes, and puts together the surfaces that have packages of their own: GET /log
// (logserver), what concerns compute nodes (nodes, over feedserver), who may ask and how
// much (auth/guard), and the HTTP kit of all (rest). Agreement and storage are left to
// what stands behind Store, the meaning of objects to package projections, the bytes of
// the feed to package log/feed, what CNs say of their VMs to package vmm.
//
// Reads answer from this server's own state, and say how far it is in the
// header Rutter-Seq (a long list is read in slices and says the seq of the first:
// what it shows may be newer) and Rutter-Cursor, from which the log can be followed;
// ?min_seq=N waits until it has applied N, a seq or a cursor,
// ?consistent asks the leader first. Writes go to the leader wherever it is; the
// client may choose the change's id (header Rutter-Change-Id, UUIDv7), so that a
// retry is applied once.
//
// Concurrency: New starts nothing. Run serves until its context ends, and
// returns when every handler has returned, the streams of the feed and of
// GET /log included. Handler may be used without Run, as tests do. Package
// feedserver says which goroutines serve the feed.
package api
