// Package debugsocket serves a daemon's profiles, goroutines, settings and last log lines
// at a Unix socket of its own, to root and to the daemon's own user.
//
// It owns the setting --debug-socket, the paths of the socket and their bounds, and the
// settings of a daemon as they may be shown. It leaves to package api/support what a part
// holds. Nothing of it is ever served on TCP: the profiles come from runtime/pprof, because
// net/http/pprof registers itself in http.DefaultServeMux, has no bounds, and shows the
// command line.
package debugsocket
