// Package sysinfo describes a compute node in SmartOS's keys (spec/cnapi.md section
// 4.3): its name, platform, memory, processors, disks, network interfaces and link
// aggregations.
//
// It owns the form (Info, NIC, Aggregation: Parse reads it, Info.JSON writes it
// canonically). Package agent/sysinfo/probe gathers an Info from the system and sends
// it when it changes. What the log makes of it is left to package api/triton/cnapi.
//
// Concurrency: values are plain.
package sysinfo
