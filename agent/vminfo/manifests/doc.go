// Package manifests has the source of VMs that are described by manifests in a folder;
// the system says what really runs. A Folder gets changes from inotify, pidfds, netlink
// and the table of mounts, in one epoll, and inspects everything now and then in case
// an event was missed. The goroutine of Run owns all of it, except Scan and Status,
// which any goroutine may call.
package manifests
