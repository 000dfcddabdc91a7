// Package probe gathers a compute node's sysinfo from the system, and sends it when it
// has changed.
//
// It reads links and addresses by netlink (net.Interfaces and /sys/class/net), memory
// and boot time from /proc, the machine's names from DMI in /sys, disks from
// /sys/block, and the nic tags of links from a file that the operator writes, in the
// form of SmartOS's /usbkey/config: TAG_nic=MAC or LINK. It owns the watch on them:
// netlink's messages of links and addresses, the file's time, and a check each minute
// for what neither reports. The form is package sysinfo's.
//
// Concurrency: Gather has no state. Watcher.Run blocks until its context ends;
// Refresh may be called from any goroutine.
package probe
