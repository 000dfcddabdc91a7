// Package tls runs three servers over TLS, as an operator would have them, and
// sees who is let in at which port, what a token buys, how fast a revocation
// works, and that authorities are replaced while everybody goes on writing.
package tls
