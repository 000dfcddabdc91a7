// Package history reads the log and the state as they were: of a running server (Reader),
// and of the data folder of a stopped server or a snapshot file (Folder). It owns the
// index of the past, which says which entries may concern an object; the fold of a
// checkpoint and the entries after it; and the folder that is written from the entries of
// another log (FolderWriter).
//
// It reads changes.db in short transactions. Of a running server it writes only the index
// (Indexer). A Reader's and a Folder's methods may be called by any goroutine; an
// Indexer's and a FolderWriter's may not be called concurrently.
package history
