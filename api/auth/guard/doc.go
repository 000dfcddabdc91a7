// Package guard runs before every request: it determines the identity, asks the matrix
// whether the request is allowed, and bounds how much the identity may use of this
// server.
//
// It owns the identity and the grant of a request, the limits on connections and
// requests of one address and one identity, the budgets of reads, the turns of long
// reads, and their records for the audit log and /metrics. What a role may ask is left
// to package matrix, what a budget is to package budget, forms and words of answers to
// package rest.
//
// A Guard starts nothing and may be used concurrently. What it remembers of identities
// is bounded.
package guard
