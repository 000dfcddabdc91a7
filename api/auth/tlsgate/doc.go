// Package tlsgate is TLS for every port and client of Rutter: TLS 1.3 with certificates
// on both sides. They are read from files that may change at any time, and checked by
// package pki.
//
// A Keeper holds one identity (certificate and key) with the authorities that it
// trusts. It re-reads its files when they change, and takes authorities and revocations
// from the log. It knows every connection that was made with it. If a connection's
// certificate is revoked or has ended, the Keeper closes the connection. A Listener
// admits the identities of its port; Dial connects to a server; a Renewer gets a new
// certificate before the old one ends.
//
// The package leaves to others what an identity may do (matrix), who may get a
// certificate (enrol), and following the log (cmd).
//
// Constructors start nothing. A Listener's goroutines begin with the first Accept and
// end with Close; Keeper.Run and Renewer.Run block. All methods may be called
// concurrently.
package tlsgate
