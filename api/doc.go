// Package api is a server's HTTP interface: objects in the forms of NAPI, CNAPI and
// VMAPI, changes, the log as lines of JSON, the feed of compute nodes (CNs), lookups,
// the cluster, health and metrics.
//
// It owns the paths of objects, changes, lookups, the cluster and health, with their
// forms and status codes. It mounts the surfaces of other packages: GET /log
// (logserver), routes about compute nodes (nodes, over feedserver), access and limits
// (auth/guard), and the shared HTTP kit (rest). Agreement and storage are left to the
// implementation of Store, the meaning of objects to package projections, the bytes of
// the feed to package log/feed, what CNs report about their VMs to package vmm.
//
// Reads answer from this server's own state. The header Rutter-Seq has the seq of that
// state, and Rutter-Cursor the cursor from which the log can be followed. A long list
// is read in slices and has the seq of the first slice; later slices may be newer.
// ?min_seq=N waits until this server has applied N, a seq or a cursor. ?consistent asks
// the leader first. Writes go to the leader from any server. The client may choose the
// change's id (header Rutter-Change-Id, UUIDv7), so that a retry is applied once.
//
// New starts nothing. Run serves until its context ends, and returns when every handler
// has returned, including the streams of the feed and of GET /log. Handler may be used
// without Run, as tests do. Package feedserver says which goroutines serve the feed.
package api
