// Package napi is Triton's networking API on a Rutter server: NIC tags, networks, their
// IPs, NICs, fabrics, pools, aggregations, routers, search and ping, in the forms, with
// the statuses and with the words that NAPI's clients know (spec/napi.md).
//
// It owns paths, forms, the parameters of requests, and the translation of refusals
// into NAPI's errors. Whether a change is accepted is decided by package projections,
// in the log. A condition on an Etag is part of the change, so nothing comes between
// the check and the write.
//
// If the leader changes during a write, the write is proposed again with the same
// change id until its result is known. It is applied once, and clients only notice the
// delay. Lists read the state in slices of a bounded number of objects, and print
// without its lock.
//
// New starts nothing, and there is nothing to run or close. The handler may be called
// from any number of goroutines.
package napi
