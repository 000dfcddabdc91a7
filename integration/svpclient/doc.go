// Package svpclient has two SVP clients for tests, written from spec/svp.md alone:
// Illumos does what illumos varpd does (section 2), Linux what linux-cn-varpd does
// (section 4). They do not use package varp, so that they find a mistake that both
// sides of its codec make. They end with an error at everything that the old programs
// do not accept.
//
// It owns the state of such a client. The tests know the expected answers.
//
// Concurrency: a client belongs to one goroutine.
package svpclient
