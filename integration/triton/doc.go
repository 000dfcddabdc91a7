// Package triton drives the surfaces of Triton that real servers have: listeners
// of the change feed by the hundred, which note what they got and when, while
// servers are killed. Its tests and `make bench-triton` do the same things.
//
// Concurrency: a Fleet runs from its start to Stop; its other methods may
// be called meanwhile.
package triton
