// Package svpclient has two SVP clients for tests, written from spec/svp.md
// alone: Illumos does what illumos varpd does (section 2), Linux what
// linux-cn-varpd does (section 4). They use nothing of package varp, so that they
// notice a mistake that both sides of its codec would make, and they end at
// whatever the old programs would not bear.
//
// It owns what such a client remembers; what is true is for the test to say.
//
// Concurrency: a client belongs to one goroutine.
package svpclient
