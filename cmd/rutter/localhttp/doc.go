// Package localhttp serves the HTTP surfaces of daemons on a compute node to programs of
// the same machine.
//
// It owns what all of these surfaces need: bounds on time (Serve) and on connections
// (Listen), the refusal of what a web page in a browser of this machine asks (Protect),
// who a client is (PeerOf), a Unix socket for the APIs that change something (Socket), and
// a handler that changes nothing (ReadOnly). Their clients of the same machine reach them
// by Reach, which refuses a server of another user. It leaves to the daemons what they
// serve.
//
// A client is known by the kernel's word only: on a Unix socket by SO_PEERCRED and
// SO_PEERGROUPS (socket(7)), on TCP of this machine by the owner of the client's socket
// (sock_diag(7)). A client on another machine is unknown.
package localhttp
