// Package offline works on data folders that no server has open, and on snapshot files.
// It verifies them and describes their content, makes a snapshot of a folder and a folder
// of a snapshot, returns free pages to the file system, shows the raft entry that stopped
// a server, and plants the record with which servers skip it.
//
// Nothing here runs beside a server: bbolt's lock allows only one of them in a folder.
// Files are put into place with one rename, so a crash leaves the old state or the new
// one.
package offline
