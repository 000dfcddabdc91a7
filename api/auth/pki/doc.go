// Package pki makes and checks certificates: authorities, requests and what they grant,
// tokens for a first certificate, and revocations.
//
// A cluster has two sets of authorities. "clients" signs certificates for the API: of
// servers, compute nodes, operators and readers. "peers" signs certificates for the
// raft port, where only servers may connect. An identity is one URI in a certificate
// (package matrix). Host names are only for browsers and curl, and decide nothing.
//
// A certificate that was granted after a revocation of its identity says so in an extension
// (After), so that also those who were away when the log listed it know that it is good.
//
// All keys are ECDSA on P-256 with SHA-256, because browsers accept nothing better.
//
// The package owns those formats and the decision whether a chain is good at a time. It
// leaves to others where files are and when they are read (tlsgate), who may get a
// certificate (enrol), and what an identity may do (matrix). It has no clock and no
// file. Functions may be called concurrently; a Trust is immutable.
package pki
