// Package hostile is clients who mean harm to a cluster over TLS: strangers who
// knock, say nothing or rubbish, and compute nodes gone mad that have a good
// certificate.
//
// It is used by a test of its own, with a server as a process, and by the bench of
// security. What is measured of others meanwhile is left to those.
//
// Concurrency: Run blocks until everything that it started has ended.
package hostile
