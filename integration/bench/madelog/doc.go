// Package madelog makes folders of logs, by the rules of the servers, for benches and
// tests of what repeats a log: updates of VMs, and changes of many kinds that refer to each
// other.
//
// Concurrency: a log is made by one goroutine.
package madelog
