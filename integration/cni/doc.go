// Package cni tests `rutter cni` as runtimes of containers use it: by cnitool, the tool of
// the specification's authors, and by podman, on two compute nodes with agents and servers
// as processes. It also runs the commands of docs/vms.md, from a fabric to VMs of each sort
// that reach each other, except libvirt's (integration/libvirt).
//
// It has tests only. What the plugin says of wrong input is tested in cmd/rutter/cnicmd.
package cni
