// Package integration holds the tests that need real processes: servers that
// are killed, agents in namespaces, the demo from the outside, and the full
// link stack in a guest kernel. Its subfolders are the tools for that: netlab
// (namespaces and links), guest (the guest kernel), and arch (the rules of the
// house).
package integration
