// Package conformance runs the rows of api/triton/conformance against real servers.
//
// It owns the test that each row holds, or departs as docs/triton.md says, and those of
// rutter triton check. The rows themselves are data of api/triton/conformance.
package conformance
