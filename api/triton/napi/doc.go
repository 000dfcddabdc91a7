// Package napi is Triton's networking API on a server of ours: NIC tags,
// networks, their IPs, NICs, fabrics, pools, aggregations, routers, search and
// ping, in the forms, with the statuses and with the words that NAPI's clients
// know (spec/napi.md).
//
// It owns paths, forms, what is read from a request, and the translation of the
// core's refusals into NAPI's errors. Whether a change is accepted is decided by
// package projections, in the log; a condition on an Etag stands in the change
// itself, so nothing comes between the check and the write.
//
// A write that meets a change of leader is proposed again with the same change
// id until it is known what became of it: it is applied once, and clients that
// know nothing of leaders only see it take longer. Lists look at the state in
// slices of a bounded number of objects, and print outside of its lock.
//
// Concurrency: New starts nothing, and there is nothing to run or close. The
// handler may be called from any number of goroutines.
package napi
