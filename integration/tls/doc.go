// Package tls runs three servers over TLS, as operators do. It tests which clients each
// port accepts, what a token allows, how fast a revocation takes effect, and that
// authorities can be replaced while clients write.
package tls
