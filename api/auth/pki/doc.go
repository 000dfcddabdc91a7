// Package pki makes and judges certificates: authorities, requests, what they
// grant, tokens that buy the first one, and which are revoked.
//
// A cluster has two sets of authorities. "clients" signs what is shown at the
// API: certificates of servers, compute nodes, operators and readers. "peers"
// signs what servers show each other on the raft port, and nothing else is let
// in there. An identity stands in a certificate as one URI (package access);
// names of hosts are only there for browsers and curl, and decide nothing.
//
// Everything is ECDSA on P-256 with SHA-256, since browsers take nothing better.
//
// The package owns those formats and the decision whether a chain is good at a
// time. It leaves to others where files are and when they are read (tlsgate),
// who may be given a certificate (enrol), and what an identity may do (access).
// It has no clock and no file. Functions may be called concurrently; a Trust is
// never changed after it was made.
package pki
