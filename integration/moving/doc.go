// Package moving moves an installation of Triton's kind to Rutter, with real
// servers: `rutter import napi` from one cluster's NAPI into another, and every
// command of docs/triton.md.
//
// It owns the tests of the move as an operator does it; what is read, planned
// and refused is tested where that is done, in package cmd/rutter/importcmd.
package moving
