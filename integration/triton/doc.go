// Package triton drives the surfaces of Triton that real servers have: listeners
// of the change feed by the hundred, which note what they got and when, while
// servers are killed. Its tests and `make bench-triton` do the same things.
//
// Concurrency: a Fleet's listeners run between Start and Stop; its methods may
// be called meanwhile.
package triton
