// Package manifests has the source of VMs that manifests in a folder describe, the
// system being the only truth of what runs: a Folder hears of changes by inotify,
// pidfds, netlink and the table of mounts, in one epoll, and looks at everything
// now and then in case an event was missed. The goroutine of Run owns all of it,
// except for Scan and Status, which any goroutine may call.
package manifests
