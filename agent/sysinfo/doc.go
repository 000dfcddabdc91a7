// Package sysinfo says what a compute node is, in SmartOS's keys (spec/cnapi.md
// section 4.3): its name, platform, memory, processors, disks, network interfaces
// and link aggregations.
//
// It owns the form (Info, NIC, Aggregation: Parse reads it, Info.JSON writes it
// canonically), the gathering of an Info from netlink, /proc, /sys and DMI
// (Gatherer), and the Watcher that gathers anew when a link, an address or a file
// changed, and sends what differs from what was sent. Where it is sent to is left
// to a function, and what the log makes of it to package api/triton/cnapi.
//
// Concurrency: values are plain. A Gatherer may be used from one goroutine at a
// time. Watcher.Run blocks until its context ends; Refresh and Info may be called
// from any goroutine.
package sysinfo
