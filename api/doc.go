// Package api is the HTTP of a server: objects in the form that NAPI, CNAPI and
// VMAPI gave them, changes, the log as lines of JSON, the feed of compute nodes
// (CNs), lookups, the cluster, health and metrics.
//
// It owns paths, forms, status codes, the limits on what strangers may send,
// the choice of what a subscriber of the feed gets, and the sessions of CNs
// (soft state: nothing of them is written). Agreement and storage are left to
// whoever stands behind Store, the meaning of objects to package projections,
// the bytes of the feed to package log/feed, what CNs say of their VMs to package
// api/vmm.
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
// GET /log included. Handler may be used without Run, as tests do. Each
// subscriber of the feed has one goroutine, which reads what the CN sends; few
// workers write to all of them (see crew), and a watcher reads what the log has
// new while there are subscribers. A subscriber has no queue, only a place in the
// log.
package api
