// Package matrix decides who may do what: identities and their roles, the matrix of
// every endpoint, frame and command against every role, and the decision about one
// request or one frame.
//
// It owns the identity in a certificate, the table, and the words of a refusal, which
// name what is missing. It leaves to others how an identity is proved (TLS), how a
// refusal is answered (api), which objects concern a compute node and which of their
// fields it may write (projections, which decides writes again in the log's own order).
//
// It is pure: no clock, file, socket or goroutine. All of it may be used concurrently.
package matrix
