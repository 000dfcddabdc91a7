// Package certcmd has the commands `rutter cert …`, `rutter token …` and `rutter
// agent join`: how identities come to machines and people, and how they are
// taken away.
//
// It owns the flags and what is printed. Files are package tlsgate's, formats
// pki's, and what the cluster is told goes through the endpoints of enrol.
//
// A command runs in its caller's goroutine until it is done.
package certcmd
