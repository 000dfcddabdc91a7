// Package allow admits programs without TLS by their source addresses, because they
// have no certificate (architecture section 11).
//
// It owns the list of networks with the right of each, and the handler that checks it
// before it reads a request's body. What an admitted program may do in particular is
// left to package matrix.
//
// A List is immutable. A Handler and a Listener may be used from any number of
// goroutines.
package allow
