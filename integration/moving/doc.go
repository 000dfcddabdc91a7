// Package moving tests the move of a Triton installation to Rutter, with real servers:
// `rutter import napi` from one cluster's NAPI into another, and every command of
// docs/triton.md.
//
// It owns the tests of an operator's steps. Package cmd/rutter/importcmd tests reading,
// planning and refusals.
package moving
