// Package hostile has hostile clients of a cluster over TLS: unknown clients that
// connect and send nothing or garbage, and faulty compute nodes with a valid
// certificate.
//
// A test of this package, with a server as a process, and the security bench use it.
// They measure the effect on other clients.
//
// Concurrency: Run blocks until everything that it started has ended.
package hostile
