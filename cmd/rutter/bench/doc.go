// Package bench measures a cluster of servers from outside, as its clients see
// it: writes, reads, the reading of the whole log, and the time without a
// leader. `rutter bench` and `make bench-store` are its faces.
//
// It owns the workload, the processes of a cluster that it starts itself, and
// what is measured; the closed loop and the quantiles are package load's.
//
// Concurrency: a Cluster belongs to one goroutine; everything else ends before
// the function that started it returns.
package bench
