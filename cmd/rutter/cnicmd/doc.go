// Package cnicmd is `rutter cni`: a plugin of the Container Network Interface (CNI,
// spec 1.1.0 and the older versions in specVersions). A runtime of containers runs it for
// each container, and the container gets a NIC of a network of the log.
//
// It owns what is CNI's: the configuration, the results, the errors with their codes, and
// the name of a container's namespace among those of the agent. A container is a VM that
// it registers with the agent of the node (agent/vmsource/registered, source "cni"), by the
// agent's Unix socket. The agent makes the NIC in the log and the link in the kernel, and
// remembers what it could not send yet. So the plugin keeps no files of its own, and each
// of its commands may be repeated.
//
// The protocol itself (variables, versions, the form of results) is the library's:
// github.com/containernetworking/cni.
//
// A command ends within its timeout (Conf.Timeout). It writes its result or its error to
// standard output, and nothing else there.
package cnicmd
