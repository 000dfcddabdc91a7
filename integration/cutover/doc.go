// Package cutover rehearses docs/triton.md, section 4: a Triton installation goes over to
// Rutter and back, step by step, while its documented calls run without one failure.
//
// The servers are real ones. Triton's VMAPI, CNAPI and Workflow are stand-ins of this
// package, which behave as spec/triton-callers.md says: HTTP servers with stores of their
// own, whose jobs call CNAPI, NAPI and VMAPI by the URLs that they are configured with.
// The old NAPI is another cluster of Rutter's.
package cutover
