// Package offline does what is done with a data folder that no server has open, and
// with snapshot files: it verifies them and says what they hold, makes a snapshot of a
// folder and a folder of a snapshot, gives free pages back, and shows the raft entry
// that stopped a server and plants the record that takes it past.
//
// Nothing here runs beside a server: bbolt's lock keeps both out of one folder. What a
// function writes is put into place with one rename, so a crash leaves the old state or
// the new one.
package offline
