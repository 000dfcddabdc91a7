// Package certcmd has the commands `rutter cert …`, `rutter token …` and `rutter agent
// join`: they issue, show, renew and revoke the certificates of machines and people.
//
// It owns the flags and the output. Package tlsgate owns files, pki formats. Requests
// to the cluster use the endpoints of enrol.
//
// A command runs in its caller's goroutine until it is done.
package certcmd
