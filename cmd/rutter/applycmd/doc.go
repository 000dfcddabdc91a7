// Package applycmd is `rutter plan` and `rutter apply`: what documents would do to the
// log, and doing it.
//
// It owns the packing of operations into as few changes as limits allow (pack.go), the
// file of a saved plan (saved.go), what must be accepted before objects are replaced or
// deleted (accept.go), the writing with its receipt (write.go), and the wait afterwards
// (wait.go). What documents mean is package documents', and what changes do package
// foresee's.
//
// A plan is computed of the state that the servers have, and each operation names the seq
// that its object has there, or makes an object whose id the documents give: what was
// written meanwhile by others is never overwritten, and what is written twice is refused.
//
// Concurrency: a command runs in one goroutine. Others keep the write stream, and
// ask each server for its head.
package applycmd
