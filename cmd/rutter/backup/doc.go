// Package backup makes the backups of a server by a schedule: one snapshot file after
// another in a folder, each of them restored and checked before it gets its name.
//
// The server only streams a snapshot. Everything that touches the folder is done by a
// process of its own (Work), which is started for one backup and ends with it. So a
// folder whose disk hangs keeps that process waiting, and never the server, nor its
// restart: the server's own files, locks and ports are not open there. The process has a
// low priority, one processor, and may write to the folder only. It is started by a
// second small process, the launcher, which the server starts before it restricts itself
// (package confine): a disk that is mounted later can still be used.
//
// The package owns the names of the files, when a backup is due, which files are deleted,
// and what of that is reported. The form of a snapshot, and the restore, are package
// raftstore/offline's.
package backup
