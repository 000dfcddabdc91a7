// Package clustercmd has the commands of the servers themselves: rutter cluster
// (members, leadership, time, retention, and offline work on a server's folder), rutter
// snapshot and rutter grant.
package clustercmd
