// Package vmhelper runs the VMs of a folder of manifests in a process of its own, for an
// agent that has not the rights to do it: Server is in that process, Client in the agent.
// They speak at a Unix socket that is root's: one connection is one request and its answer,
// each a length of four bytes and JSON (message.go). DESIGN.md says why.
//
// It owns the protocol, its bounds, who may ask, and the client's watch over the helper. It
// leaves to package vmrun what a VM is made of, and to the command how the socket is opened.
//
// Methods of Server and Client may be called from any goroutine. Neither constructor starts
// one: Run does.
package vmhelper
