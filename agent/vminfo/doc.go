// Package vminfo serves the VMs of a compute node as Triton's vminfod does
// (spec/vminfod.md): the complete set over HTTP on loopback, and a stream of create,
// modify and delete events. The system is the only source of truth; the folders below
// read it:
//
//	vmdoc      the JSON of a VM, and Diff (the vectors of the original)
//	vmstore    the VMs with their last events; how sources tell of VMs
//	system     what the node has of a VM: manifest, namespace, process, cgroup
//	manifests  a source: a folder of manifests, and what really runs
//	vminfod    another source, another vminfod; and a client of one
//	vmrun      starts and stops the VMs of manifests
//	vmmstate   the incarnations of VMs, with state and generation, for servers
//
// # Concurrency
//
// Each source runs in the goroutine of its Run and writes to a Store, which may
// be used from any goroutine. Service.Run starts the sources and the HTTP
// server, and returns when all of them have ended. VMs are kept as JSON text
// that is not changed: readers share it.
//
//	inotify ─┐
//	pidfd   ─┤ epoll    ┌────────┐      ┌───────┐ ring  ┌──────────────┐
//	netlink ─┼─────────▶│ Folder ├─────▶│ Store ├──────▶│ /events, … N │
//	mounts  ─┘          └────────┘      │       │       └──────────────┘
//	vminfod ──HTTP─────▶│ Stream ├─────▶└───────┘
package vminfo
