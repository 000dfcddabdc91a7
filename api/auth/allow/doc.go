// Package allow lets old programs in by their source addresses: those that speak
// no TLS, and so have no name (architecture section 11).
//
// It owns the list of networks with what each may do, and the handler that asks
// it before anything of a request's body is read. What a program that was let in
// may do in particular is left to the matrix of package access. Concurrency: a
// List never changes; a Handler and a Listener may be used from any number of goroutines.
package allow
