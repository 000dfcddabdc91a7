// Package history answers for the log and the state as they were: of a server that
// runs (Reader), and of the data folder of one that does not, or a snapshot file
// (Folder). It owns the index of the past, which says which entries may concern an
// object, the fold of a checkpoint and the entries after it, and the folder that is
// written from the entries of another log (FolderWriter).
//
// It reads changes.db in short transactions, and writes nothing of a running server
// but the index (Indexer). A Reader's and a Folder's methods may be called by any
// goroutine; an Indexer's and a FolderWriter's may not be called concurrently.
package history
