// Package integration holds the tests that need real processes: servers that are
// killed, agents in namespaces, the demo from the outside, and the full link stack in a
// guest kernel. Its subfolders hold tools, such as guest (the guest kernel), tests by
// subject, and arch (the rules of the house).
package integration
