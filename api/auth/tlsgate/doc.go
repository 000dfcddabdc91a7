// Package tlsgate is TLS as every port and every client of Rutter has it: TLS
// 1.3 with certificates on both sides, read from files that may change at any
// time, judged by package pki.
//
// A Keeper holds one identity (certificate, key) with the authorities that it
// trusts. It re-reads its files when they change, takes the authorities and the
// revocations that the log has, and knows every connection that was made with
// it, so that one whose certificate is revoked, or has ended, is closed whatever
// it carries. A Listener lets in whom its port is for; Dial reaches a server; a
// Renewer gets a new certificate before the old one ends.
//
// The package leaves to others what an identity may do (access), who may have a
// certificate (enrol), and following the log (cmd).
//
// Constructors start nothing. A Listener's goroutines begin with the first
// Accept and end with Close; Keeper.Run and Renewer.Run block. All methods may be
// called concurrently.
package tlsgate
