// Package vminfo knows the VMs of a compute node, the system being the only
// truth, and tells of them as Triton's vminfod does (spec/vminfod.md): the
// whole set over HTTP on loopback, and a stream of create, modify and delete.
//
// It owns: the sources of VMs (Folder: a folder of manifests, and what really
// runs; Stream: another vminfod), the Store of VMs with its last events, Diff
// (the vectors of the original), the HTTP service, a Client for it, a Runner that
// starts and stops the VMs of manifests, and the VMMs of the node: their states
// and generations on disk, served to servers (spec/vmm-doorbell.md). It leaves to
// others: carrying rings and states to servers, and the NICs in namespaces.
//
// # Concurrency
//
// Each source runs in the goroutine of its Run and writes to a Store, which may
// be used from any goroutine. Service.Run starts the sources and the HTTP
// server, and returns when all of them have ended. VMs are kept as JSON text
// that nobody changes: readers share it.
//
//	inotify ─┐
//	pidfd   ─┤ epoll    ┌────────┐      ┌───────┐ ring  ┌──────────────┐
//	netlink ─┼─────────▶│ Folder ├─────▶│ Store ├──────▶│ /events, … N │
//	mounts  ─┘          └────────┘      │       │       └──────────────┘
//	vminfod ──HTTP─────▶│ Stream ├─────▶└───────┘
package vminfo
