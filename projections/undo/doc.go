// Package undo computes what takes changes back: from entries of the log that were chosen,
// and from what there is now, the operations after which everything that people asked for is
// as it would be without these entries.
//
// It owns the comparison of what was, what the chosen entries made of it, and what others
// made of it since: conflicts, which it leaves to its caller, what compute nodes reported,
// which it leaves alone, and what cannot be taken back. How changes are decided is package
// rules'; what a plan would do to kernels is package foresee's.
//
// The package is pure. DESIGN.md has the reasons.
package undo
