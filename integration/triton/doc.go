// Package triton tests Triton's surfaces on real servers: hundreds of listeners of the
// change feed record what they received and when, while servers are killed. Its tests
// and `make bench-triton` do the same work.
//
// Concurrency: a Fleet runs from its start to Stop; its other methods may
// be called meanwhile.
package triton
